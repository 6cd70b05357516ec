"""Makes the lab's model: a Qwen3-MoE of two layers with random weights, tokenizer and chat template.

Usage: model.py DIRECTORY

1.5 MB that take the same path through vLLM as the real Qwen3.5-122B-A10B. Its answers mean nothing.
Heads, experts and vocabulary can be shared by 1, 2, 3, 4, 6 or 8 ranks.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3MoeConfig, Qwen3MoeForCausalLM

VOCABULARY = 576
HEADS = 24
CONTEXT = 4096
END, PAD = "<|im_end|>", "<|endoftext|>"
SPECIAL = [
    PAD,
    "<|im_start|>",
    END,
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
]
CORPUS = [
    "The quick brown fox jumps over the lazy dog. Two sparks serve one model over a direct cable.",
    "system user assistant tool You are a helpful assistant. Reply with one short sentence.",
    '{"name": "get_weather", "arguments": {"city": "Paris"}}',
]
CHAT_TEMPLATE = """{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{%- if enable_thinking is defined and enable_thinking is false %}
<think>

</think>

{%- endif %}
{% endif %}"""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE that fits the vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS * 5, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.add_tokens([token for token in SPECIAL if token not in fast.get_vocab()])
    # The corpus gives fewer tokens than the model has: each of the model's gets a text.
    fast.add_tokens([f"<|spare_{number}|>" for number in range(VOCABULARY - len(fast))])
    fast.model_max_length = CONTEXT
    fast.chat_template = CHAT_TEMPLATE
    assert len(fast) == VOCABULARY, len(fast)
    return fast


def make_model(tokenizer: PreTrainedTokenizerFast) -> Qwen3MoeForCausalLM:
    """Random weights, the same on every run."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=192,
        moe_intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=32,
        num_experts=4,
        num_experts_per_tok=2,
        decoder_sparse_step=1,
        norm_topk_prob=True,
        max_position_embeddings=CONTEXT,
        rope_theta=1e6,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    return Qwen3MoeForCausalLM(config).to(torch.bfloat16)


def main(directory: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(directory)
    model = make_model(tokenizer)
    model.save_pretrained(directory, safe_serialization=True)
    generation = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "temperature": 0.6,
        "top_p": 0.95,
        "do_sample": True,
    }
    (directory / "generation_config.json").write_text(json.dumps(generation))
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(tokenizer)} tokens")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
