// pulumi-resource-random makes random values that stay the same between updates. It is bridged from the same upstream
// provider as Pulumi's own plugin, for which it stands in where that one can't be downloaded; see README.md.
package main

import (
	"context"
	"errors"
	"fmt"

	pf "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/terraform-providers/terraform-provider-random/shim"
)

// version is set at link time.
var version = "0.0.0-dev"

func main() {
	// The package schema is read by SDK generators only. The Node SDK comes from npm.
	schema := fmt.Appendf(nil, `{"name":"random","version":%q}`, version)
	pf.Main(context.Background(), "random", Provider(), pf.ProviderMetadata{PackageSchema: schema})
}

// Provider maps the upstream's resources: random_password is `random:index/randomPassword:RandomPassword`.
func Provider() tfbridge.ProviderInfo {
	prov := tfbridge.ProviderInfo{
		P:            pf.ShimProvider(shim.NewProvider()),
		Name:         "random",
		Version:      version,
		MetadataInfo: tfbridge.NewProviderMetadata([]byte("{}")),
		Resources: map[string]*tfbridge.ResourceInfo{
			"random_bytes": {ComputeID: idOfBytes},
		},
		EnableAccurateBridgePreview: true,
		EnableRawStateDelta:         true,
	}
	prov.MustComputeTokens(tokens.SingleModule("random_", "index", func(module, name string) (string, error) {
		return tokens.MakeStandard("random")(module, "Random"+name)
	}))
	return prov
}

// idOfBytes is there because upstream's random_bytes has no id of its own.
func idOfBytes(_ context.Context, state resource.PropertyMap) (resource.ID, error) {
	value := state["base64"]
	if value.IsSecret() {
		value = value.SecretValue().Element
	}
	if !value.IsString() {
		return "", errors.New("random_bytes has no base64 value")
	}
	return resource.ID(value.StringValue()), nil
}
