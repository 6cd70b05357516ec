package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	// alreadyExplained is the exit code by which the Node SDK says that it has shown the user what is wrong.
	alreadyExplained = 32

	// timeToEnd is how long a cancelled program may take before it is killed.
	timeToEnd = 5 * time.Second
)

type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer

	ctx     context.Context // ends when the engine is gone or cancels
	stop    context.CancelFunc
	running sync.WaitGroup // of children
	engine  string
	tracing string
}

func (h *host) Handshake(_ context.Context, req *pulumirpc.LanguageHandshakeRequest,
) (*pulumirpc.LanguageHandshakeResponse, error) {
	if h.engine == "" {
		h.engine = req.GetEngineAddress()
	}
	return &pulumirpc.LanguageHandshakeResponse{}, nil
}

func (h *host) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: version}, nil
}

// Cancel ends every child and then this process.
func (h *host) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	h.stop()
	return &emptypb.Empty{}, nil
}

// command prepares a child that ends with the request or with the engine, politely at first.
func (h *host) command(ctx context.Context, dir, name string, args ...string) (*exec.Cmd, func()) {
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(h.ctx, cancel)
	h.running.Add(1)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = timeToEnd
	return cmd, func() {
		unlink()
		cancel()
		h.running.Done()
	}
}

// Run runs the program. What is wrong with the program is in the response; an error would mean that we are broken.
func (h *host) Run(ctx context.Context, req *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	opts, err := readOptions(req.GetInfo())
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	args, err := runArgs(req, opts, h.engine, h.tracing)
	if err != nil {
		return &pulumirpc.RunResponse{Error: err.Error()}, nil
	}
	env, err := runEnv(req, opts)
	if err != nil {
		return nil, err
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return &pulumirpc.RunResponse{Error: "node is not on PATH: install Node.js 20 or newer"}, nil
	}

	cmd, done := h.command(ctx, req.GetPwd(), node, args...)
	defer done()
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // the engine shows both to the user
	cmd.Env = append(os.Environ(), env...)
	err = cmd.Run()

	var exit *exec.ExitError
	switch {
	case err == nil:
		return &pulumirpc.RunResponse{}, nil
	case errors.As(err, &exit) && exit.ExitCode() == alreadyExplained:
		return &pulumirpc.RunResponse{Bail: true}, nil
	case errors.As(err, &exit) && exit.Exited():
		return &pulumirpc.RunResponse{Error: fmt.Sprintf("Program exited with non-zero exit code: %d", exit.ExitCode())}, nil
	default:
		return &pulumirpc.RunResponse{Error: "Program exited unexpectedly: " + err.Error()}, nil
	}
}

// runArgs is the command line of `node`: its own options, the SDK's runner, the runner's options, the program.
func runArgs(req *pulumirpc.RunRequest, opts options, engine, tracing string) ([]string, error) {
	info := req.GetInfo()
	runner, err := findUp(info.GetProgramDirectory(), "node_modules/@pulumi/pulumi/cmd/run/index.js")
	if err != nil {
		return nil, fmt.Errorf("the Pulumi SDK is not installed in %s: run `npm ci` there", info.GetProgramDirectory())
	}
	args := append(opts.nodeArgs, runner)
	option := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name, value)
		}
	}
	option("monitor", req.GetMonitorAddress())
	option("engine", engine)
	option("organization", req.GetOrganization())
	option("project", req.GetProject())
	option("root-directory", info.GetRootDirectory())
	option("stack", req.GetStack())
	option("pwd", req.GetPwd())
	option("tracing", tracing)
	if req.GetDryRun() {
		args = append(args, "--dry-run")
	}
	option("parallel", fmt.Sprint(req.GetParallel()))

	entry := info.GetEntryPoint()
	if entry == "" {
		entry = "."
	}
	return append(append(args, entry), req.GetArgs()...), nil
}

// runEnv is what the SDK reads from its environment.
func runEnv(req *pulumirpc.RunRequest, opts options) ([]string, error) {
	config, err := json.Marshal(orEmpty(req.GetConfig()))
	if err != nil {
		return nil, err
	}
	secretKeys, err := json.Marshal(append([]string{}, req.GetConfigSecretKeys()...))
	if err != nil {
		return nil, err
	}
	env := []string{"PULUMI_CONFIG=" + string(config), "PULUMI_CONFIG_SECRET_KEYS=" + string(secretKeys)}
	if opts.typescript {
		env = append(env, "PULUMI_NODEJS_TYPESCRIPT=true")
	}
	if opts.tsconfig != "" {
		env = append(env, "PULUMI_NODEJS_TSCONFIG_PATH="+opts.tsconfig)
	}
	return env, nil
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// InstallDependencies serves `pulumi install`.
func (h *host) InstallDependencies(
	req *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	opts, err := readOptions(req.GetInfo())
	if err != nil {
		return err
	}
	dir := req.GetInfo().GetProgramDirectory()
	manager := opts.packageManager
	if manager == "" {
		manager = managerOf(dir)
	}
	cmd, done := h.command(server.Context(), dir, manager, "install")
	defer done()
	var sending sync.Mutex // one gRPC stream, two writers
	cmd.Stdout = writerFunc(func(p []byte) error {
		sending.Lock()
		defer sending.Unlock()
		return server.Send(&pulumirpc.InstallDependenciesResponse{Stdout: bytes.Clone(p)})
	})
	cmd.Stderr = writerFunc(func(p []byte) error {
		sending.Lock()
		defer sending.Unlock()
		return server.Send(&pulumirpc.InstallDependenciesResponse{Stderr: bytes.Clone(p)})
	})
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("`%s install` in %s: %w", manager, dir, err)
	}
	return nil
}

type writerFunc func([]byte) error

var _ io.Writer = writerFunc(nil)

func (w writerFunc) Write(p []byte) (int, error) { return len(p), w(p) }

// managerOf tells a project's package manager by the lock file that it keeps.
func managerOf(dir string) string {
	for _, m := range []struct{ lock, manager string }{
		{"pnpm-lock.yaml", "pnpm"}, {"yarn.lock", "yarn"}, {"bun.lock", "bun"},
	} {
		if _, err := os.Stat(filepath.Join(dir, m.lock)); err == nil {
			return m.manager
		}
	}
	return "npm"
}

// RuntimeOptionsPrompts has nothing to ask: every runtime option has a default.
func (h *host) RuntimeOptionsPrompts(context.Context, *pulumirpc.RuntimeOptionsRequest,
) (*pulumirpc.RuntimeOptionsResponse, error) {
	return &pulumirpc.RuntimeOptionsResponse{}, nil
}

// About serves `pulumi about`.
func (h *host) About(ctx context.Context, _ *pulumirpc.AboutRequest) (*pulumirpc.AboutResponse, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, node, "--version").Output()
	if err != nil {
		return nil, err
	}
	return &pulumirpc.AboutResponse{Executable: node, Version: strings.TrimSpace(string(out))}, nil
}
