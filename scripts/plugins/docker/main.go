// pulumi-resource-docker manages containers, images, volumes and networks of a Docker host. It is bridged from the same
// upstream provider as Pulumi's own plugin, for which it stands in where that one can't be downloaded; see README.md.
package main

import (
	"fmt"
	"strings"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	shimv2 "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim/sdk-v2"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/terraform-providers/terraform-provider-docker/shim"
)

// version is set at link time.
var version = "0.0.0-dev"

func main() {
	// The package schema is read by SDK generators only. The Node SDK comes from npm.
	schema := fmt.Appendf(nil, `{"name":"docker","version":%q}`, version)
	tfbridge.Main("docker", version, Provider(), schema)
}

// Provider maps the upstream's resources and those of its names that the SDK does not derive by rule.
func Provider() tfbridge.ProviderInfo {
	prov := tfbridge.ProviderInfo{
		P:            shimv2.NewProvider(shim.NewProvider(version)),
		Name:         "docker",
		Version:      version,
		MetadataInfo: tfbridge.NewProviderMetadata([]byte("{}")),
		Config: map[string]*tfbridge.SchemaInfo{
			"host":          {Default: &tfbridge.DefaultInfo{EnvVars: []string{"DOCKER_HOST"}}},
			"registry_auth": {Name: "registryAuth", MaxItemsOne: tfbridge.False()},
		},
		Resources: map[string]*tfbridge.ResourceInfo{
			"docker_buildx_builder": {Tok: resource("BuildxBuilder")},
			"docker_config":         {Tok: resource("ServiceConfig")},
			"docker_container": {
				Tok:                 resource("Container"),
				DeleteBeforeReplace: true, // two containers can't have one name
				Fields: map[string]*tfbridge.SchemaInfo{
					"command":           {Name: "command"}, // one command, in a list of words
					"networks_advanced": {Name: "networksAdvanced"},
				},
			},
			"docker_image": {
				Tok:    resource("RemoteImage"),
				Fields: map[string]*tfbridge.SchemaInfo{"name": {Name: "name"}}, // not to be made up
			},
			"docker_network":        {Tok: resource("Network")},
			"docker_plugin":         {Tok: resource("Plugin")},
			"docker_registry_image": {Tok: resource("RegistryImage")},
			"docker_secret":         {Tok: resource("Secret")},
			"docker_service":        {Tok: resource("Service")},
			"docker_tag":            {Tok: resource("Tag")},
			"docker_volume":         {Tok: resource("Volume")},
		},
		DataSources: map[string]*tfbridge.DataSourceInfo{
			"docker_image":                    {Tok: function("getRemoteImage")},
			"docker_logs":                     {Tok: function("getLogs")},
			"docker_network":                  {Tok: function("getNetwork")},
			"docker_plugin":                   {Tok: function("getPlugin")},
			"docker_registry_image":           {Tok: function("getRegistryImage")},
			"docker_registry_image_manifests": {Tok: function("getRegistryImageManifests")},
		},
	}
	prov.SetAutonaming(255, "-")
	return prov
}

// resource is a resource's token, for example `docker:index/container:Container`.
func resource(name string) tokens.Type {
	return tokens.Type("docker:index/" + strings.ToLower(name[:1]) + name[1:] + ":" + name)
}

// function is a data source's token, for example `docker:index/getLogs:getLogs`.
func function(name string) tokens.ModuleMember {
	return tokens.ModuleMember("docker:index/" + name + ":" + name)
}
