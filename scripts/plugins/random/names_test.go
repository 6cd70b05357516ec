package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sdk = "../../../node_modules/@pulumi/random"

// Each resource of the Node SDK is found here under the token by which the SDK asks for it.
func TestTokensAreTheSDKs(t *testing.T) {
	var ours, sdks []string
	for _, info := range Provider().Resources {
		ours = append(ours, string(info.Tok))
	}
	files, err := filepath.Glob(filepath.Join(sdk, "random*.js"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the SDK has to be installed, by `npm ci`: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), `__pulumiType = '`)
		token, _, _ := strings.Cut(rest, `'`)
		sdks = append(sdks, token)
	}
	slices.Sort(ours)
	slices.Sort(sdks)
	if !slices.Equal(ours, sdks) {
		t.Errorf("here:       %q\nin the SDK: %q", ours, sdks)
	}
}
