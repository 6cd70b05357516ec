package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// manifest is the part of a package.json that matters here.
type manifest struct {
	Name            string
	Version         string
	Dependencies    map[string]string
	DevDependencies map[string]string
	// Pulumi is there in SDK packages and names the plugin they need.
	Pulumi *struct {
		Resource bool
		Name     string
		Version  string
		Server   string
	}
}

func readManifest(dir string) (manifest, error) {
	var m manifest
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s/package.json: %w", dir, err)
	}
	return m, nil
}

// installed lists the packages below a node_modules folder, those inside other packages too.
func installed(modules string) []manifest {
	var all []manifest
	for _, pattern := range []string{"*", "@*/*"} {
		dirs, _ := filepath.Glob(filepath.Join(modules, pattern)) // fails on a bad pattern only
		for _, dir := range dirs {
			m, err := readManifest(dir)
			if err != nil {
				continue // not a package, or not a sound one: none of our business
			}
			all = append(all, m)
			all = append(all, installed(filepath.Join(dir, "node_modules"))...)
		}
	}
	return all
}

func installedFor(dir string) []manifest {
	modules, err := findUp(dir, "node_modules")
	if err != nil {
		return nil
	}
	return installed(modules)
}

// plugin is the resource plugin that a package asks for; ok is false when it asks for none.
func (m manifest) plugin() (dep *pulumirpc.PackageDependency, ok bool) {
	if m.Pulumi == nil || !m.Pulumi.Resource {
		return nil, false
	}
	name := cmp.Or(m.Pulumi.Name, m.Name[strings.LastIndex(m.Name, "/")+1:])
	version := cmp.Or(m.Pulumi.Version, m.Version)
	return &pulumirpc.PackageDependency{
		Name: name, Kind: "resource", Version: "v" + strings.TrimPrefix(version, "v"), Server: m.Pulumi.Server,
	}, true
}

func (h *host) GetRequiredPackages(_ context.Context, req *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	resp := &pulumirpc.GetRequiredPackagesResponse{}
	seen := map[string]bool{} // one package may be installed in several places
	for _, m := range installedFor(req.GetInfo().GetProgramDirectory()) {
		if dep, ok := m.plugin(); ok && !seen[dep.Name+dep.Version] {
			seen[dep.Name+dep.Version] = true
			resp.Packages = append(resp.Packages, dep)
		}
	}
	return resp, nil
}

// GetRequiredPlugins is the older form of GetRequiredPackages.
func (h *host) GetRequiredPlugins(ctx context.Context, req *pulumirpc.GetRequiredPluginsRequest,
) (*pulumirpc.GetRequiredPluginsResponse, error) {
	packages, err := h.GetRequiredPackages(ctx, &pulumirpc.GetRequiredPackagesRequest{Info: req.GetInfo()})
	if err != nil {
		return nil, err
	}
	resp := &pulumirpc.GetRequiredPluginsResponse{}
	for _, p := range packages.GetPackages() {
		resp.Plugins = append(resp.Plugins, &pulumirpc.PluginDependency{
			Name: p.GetName(), Kind: p.GetKind(), Version: p.GetVersion(), Server: p.GetServer(),
		})
	}
	return resp, nil
}

// GetProgramDependencies lists what package.json names, or everything that is installed, with installed versions.
func (h *host) GetProgramDependencies(_ context.Context, req *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	dir := req.GetInfo().GetProgramDirectory()
	root, err := findUp(dir, "package.json")
	if err != nil {
		return nil, fmt.Errorf("no package.json in %s or above", dir)
	}
	program, err := readManifest(filepath.Dir(root))
	if err != nil {
		return nil, err
	}

	var found []manifest
	if req.GetTransitiveDependencies() {
		found = installedFor(dir)
	} else {
		for _, names := range []map[string]string{program.Dependencies, program.DevDependencies} {
			for name := range names {
				if path, err := findUp(dir, filepath.Join("node_modules", name)); err == nil {
					if m, err := readManifest(path); err == nil {
						found = append(found, m)
					}
				}
			}
		}
	}
	resp := &pulumirpc.GetProgramDependenciesResponse{}
	for _, m := range found {
		resp.Dependencies = append(resp.Dependencies, &pulumirpc.DependencyInfo{Name: m.Name, Version: m.Version})
	}
	slices.SortFunc(resp.Dependencies, func(a, b *pulumirpc.DependencyInfo) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version))
	})
	resp.Dependencies = slices.CompactFunc(resp.Dependencies, func(a, b *pulumirpc.DependencyInfo) bool {
		return a.Name == b.Name && a.Version == b.Version
	})
	return resp, nil
}
