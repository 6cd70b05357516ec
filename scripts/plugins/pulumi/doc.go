// Package pulumi has no code of its own: the `tool` line of its go.mod pins the Pulumi CLI, which scripts/setup builds
// from this module where Pulumi's own installer can't be reached.
package pulumi
