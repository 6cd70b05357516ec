// Package shim hands out the upstream provider, whose constructor only modules below its own path may call.
package shim

import (
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	upstream "github.com/terraform-providers/terraform-provider-docker/internal/provider"
)

func NewProvider(version string) *schema.Provider { return upstream.New(version)() }
