// Package shim hands out the upstream provider, whose constructor only modules below its own path may call.
package shim

import (
	"github.com/hashicorp/terraform-plugin-framework/provider"
	upstream "github.com/terraform-providers/terraform-provider-random/internal/provider"
)

func NewProvider() provider.Provider { return upstream.New() }
