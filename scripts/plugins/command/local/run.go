package local

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/gobwas/glob"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"dgx-spark-serving/plugins/command/common"
)

// timeToEnd is how long a cancelled command may take before it is killed.
const timeToEnd = 5 * time.Second

// BaseInputs say how a command runs.
type BaseInputs struct {
	Interpreter            *[]string          `pulumi:"interpreter,optional"`
	Dir                    *string            `pulumi:"dir,optional"`
	Environment            *map[string]string `pulumi:"environment,optional"`
	Stdin                  *string            `pulumi:"stdin,optional"`
	AssetPaths             *[]string          `pulumi:"assetPaths,optional"`
	ArchivePaths           *[]string          `pulumi:"archivePaths,optional"`
	AddPreviousOutputInEnv *bool              `pulumi:"addPreviousOutputInEnv,optional"`
	Logging                *common.Logging    `pulumi:"logging,optional"`
}

func (b *BaseInputs) annotate(a infer.Annotator) { a.SetDefault(&b.AddPreviousOutputInEnv, true) }

// BaseOutputs are what it printed and the files that were asked for.
type BaseOutputs struct {
	Stdout  string                           `pulumi:"stdout"`
	Stderr  string                           `pulumi:"stderr"`
	Assets  *map[string]types.AssetOrArchive `pulumi:"assets,optional"`
	Archive *types.AssetOrArchive            `pulumi:"archive,optional"`
}

// run runs a command; out has the last run's results and is given this one's.
func (b *BaseInputs) run(ctx context.Context, command string, out *BaseOutputs) error {
	argv := []string{"/bin/sh", "-c", command}
	if b.Interpreter != nil && len(*b.Interpreter) > 0 {
		argv = append(append([]string{}, *b.Interpreter...), command)
	}
	output := common.NewOutput(ctx, b.Logging)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = output.Stdout, output.Stderr
	cmd.Env = append(os.Environ(), b.environment(out)...)
	if b.Stdin != nil && *b.Stdin != "" {
		cmd.Stdin = strings.NewReader(*b.Stdin)
	}
	// A cancelled command takes its children with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = timeToEnd

	var err error
	if b.Dir != nil {
		cmd.Dir = *b.Dir
	} else if cmd.Dir, err = os.Getwd(); err != nil {
		return err
	}
	err = cmd.Run()
	output.Flush()
	if err != nil {
		return output.Failure(err, command)
	}
	if err := b.collect(cmd.Dir, out); err != nil {
		return err
	}
	out.Stdout, out.Stderr = output.Stdout.String(), output.Stderr.String()
	return nil
}

func (b *BaseInputs) environment(last *BaseOutputs) []string {
	var env []string
	if b.Environment != nil {
		for name, value := range *b.Environment {
			env = append(env, name+"="+value)
		}
	}
	if b.AddPreviousOutputInEnv != nil && !*b.AddPreviousOutputInEnv {
		return env
	}
	if last.Stdout != "" {
		env = append(env, common.PreviousStdout+"="+last.Stdout)
	}
	if last.Stderr != "" {
		env = append(env, common.PreviousStderr+"="+last.Stderr)
	}
	return env
}

// collect takes the files that the patterns name.
func (b *BaseInputs) collect(dir string, out *BaseOutputs) error {
	if b.AssetPaths != nil {
		assets, err := match(dir, *b.AssetPaths)
		if err != nil {
			return err
		}
		found := map[string]types.AssetOrArchive{}
		for name, asset := range assets {
			found[name] = types.AssetOrArchive{Asset: asset}
		}
		out.Assets = &found
	}
	if b.ArchivePaths != nil {
		assets, err := match(dir, *b.ArchivePaths)
		if err != nil {
			return err
		}
		content := map[string]any{}
		for name, asset := range assets {
			content[name] = asset
		}
		archive, err := resource.NewAssetArchive(content)
		if err != nil {
			return err
		}
		out.Archive = &types.AssetOrArchive{Archive: archive}
	}
	return nil
}

// match finds the files below dir that patterns name. Later patterns win; one that begins with `!` takes files out.
func match(dir string, patterns []string) (map[string]*resource.Asset, error) {
	type rule struct {
		glob.Glob
		exclude bool
	}
	var rules []rule
	for _, pattern := range patterns {
		text, exclude := strings.CutPrefix(pattern, "!")
		compiled, err := glob.Compile(text, '/')
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule{compiled, exclude})
	}

	assets := map[string]*resource.Asset{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		taken := false
		for _, r := range rules {
			if r.Match(name) {
				taken = !r.exclude
			}
		}
		if taken {
			assets[name], err = resource.NewPathAsset(path.Join(dir, name))
		}
		return err
	})
	return assets, err
}
