import { z } from "zod";

/** What `fabric-key.sh` prints. An empty key must never get as far as an `authorized_keys`. */
export const keySchema = z.object({ publicKey: z.string().regex(/^ssh-ed25519 [A-Za-z0-9+/=]{40,}( .*)?$/) });
