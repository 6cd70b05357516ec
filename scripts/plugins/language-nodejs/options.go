package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/shlex"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// options are those of `runtime` in Pulumi.yaml that a running program knows.
type options struct {
	typescript     bool
	nodeArgs       []string
	tsconfig       string
	packageManager string // empty: told by the lock file
}

var packageManagers = []string{"npm", "yarn", "pnpm", "bun"}

func readOptions(info *pulumirpc.ProgramInfo) (options, error) {
	given := info.GetOptions().AsMap()
	text := func(key string) string {
		if v, ok := given[key]; ok && v != nil {
			return fmt.Sprint(v)
		}
		return ""
	}

	o := options{typescript: text("typescript") != "false", tsconfig: text("tsconfig"), packageManager: text("packagemanager")}
	var err error
	if o.nodeArgs, err = shlex.Split(text("nodeargs")); err != nil {
		return options{}, fmt.Errorf("runtime option nodeargs: %w", err)
	}
	if o.packageManager == "auto" {
		o.packageManager = ""
	}
	if o.packageManager != "" && !slices.Contains(packageManagers, o.packageManager) {
		return options{}, fmt.Errorf("runtime option packagemanager is %q: it must be one of auto, %s",
			o.packageManager, strings.Join(packageManagers, ", "))
	}
	return o, nil
}

// findUp looks for a path below dir and then below each of its parents, as Node's own module resolution does.
func findUp(dir, rel string) (string, error) {
	for {
		path := filepath.Join(dir, rel)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("no %s: %w", rel, os.ErrNotExist)
		}
		dir = parent
	}
}
