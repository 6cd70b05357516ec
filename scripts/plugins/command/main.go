// pulumi-resource-command runs commands on remote hosts and here, as resources. It stands in for Pulumi's own plugin
// where that one can't be downloaded; see README.md.
package main

import (
	"context"
	"fmt"
	"os"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"

	"dgx-spark-serving/plugins/command/local"
	"dgx-spark-serving/plugins/command/remote"
)

// version is set at link time.
var version = "0.0.0-dev"

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-resource-command:", err)
		os.Exit(1)
	}
}

func serve() error {
	provider, err := Provider()
	if err != nil {
		return err
	}
	return p.RunProvider(context.Background(), "command", version, provider)
}

// Provider is the whole plugin. A type's token comes from its Go package and name: remote.Command is
// `command:remote:Command`.
func Provider() (p.Provider, error) {
	return infer.NewProviderBuilder().
		WithResources(
			infer.Resource(&remote.Command{}),
			infer.Resource(&remote.CopyToRemote{}),
			infer.Resource(&local.Command{}),
		).
		WithFunctions(infer.Function(&local.Run{})).
		Build()
}
