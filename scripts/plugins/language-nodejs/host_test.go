package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func info(t *testing.T, dir string, options map[string]any) *pulumirpc.ProgramInfo {
	t.Helper()
	o, err := structpb.NewStruct(options)
	if err != nil {
		t.Fatal(err)
	}
	return &pulumirpc.ProgramInfo{RootDirectory: dir, ProgramDirectory: dir, EntryPoint: ".", Options: o}
}

func newHost(t *testing.T) *host {
	ctx, stop := context.WithCancel(t.Context())
	return &host{ctx: ctx, stop: stop, engine: "127.0.0.1:1"}
}

// program is a folder with an SDK, and a `node` on PATH that is the given shell script.
func program(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir+"/node_modules/@pulumi/pulumi/cmd/run/index.js", "", 0o644)
	write(t, dir+"/bin/node", "#!/bin/sh\n"+script, 0o755)
	t.Setenv("PATH", dir+"/bin:"+os.Getenv("PATH"))
	return dir
}

func TestRunPassesOn(t *testing.T) {
	dir := program(t, `printf '%s\n' "$@" > args; env | grep ^PULUMI_ | sort > env`)
	t.Setenv("PULUMI_BACKEND_URL", "")
	resp, err := newHost(t).Run(t.Context(), &pulumirpc.RunRequest{
		Project: "p", Stack: "s", Organization: "o", Pwd: dir, Parallel: 7, DryRun: true, MonitorAddress: "127.0.0.1:2",
		Config: map[string]string{"p:key": `it's "quoted"`}, ConfigSecretKeys: []string{"p:key"}, Args: []string{"one arg"},
		Info: info(t, dir, map[string]any{"nodeargs": `--title "a b"`, "tsconfig": "other.json"}),
	})
	if err != nil || resp.GetError() != "" || resp.GetBail() {
		t.Fatal(resp, err)
	}
	args, err := os.ReadFile(dir + "/args")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"--title", "a b", dir + "/node_modules/@pulumi/pulumi/cmd/run/index.js", "--monitor", "127.0.0.1:2",
		"--engine", "127.0.0.1:1", "--organization", "o", "--project", "p", "--root-directory", dir, "--stack", "s",
		"--pwd", dir, "--dry-run", "--parallel", "7", ".", "one arg",
	}
	if got := strings.Split(strings.TrimSpace(string(args)), "\n"); !slices.Equal(got, want) {
		t.Errorf("args:\n got %q\nwant %q", got, want)
	}
	env, err := os.ReadFile(dir + "/env")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`PULUMI_CONFIG={"p:key":"it's \"quoted\""}`, `PULUMI_CONFIG_SECRET_KEYS=["p:key"]`,
		"PULUMI_NODEJS_TYPESCRIPT=true", "PULUMI_NODEJS_TSCONFIG_PATH=other.json",
	} {
		if !slices.Contains(strings.Split(string(env), "\n"), want) {
			t.Errorf("env: no %s in\n%s", want, env)
		}
	}
}

func TestRunEnds(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		options map[string]any
		err     string
		bail    bool
	}{
		"well":                     {script: "exit 0"},
		"with the error shown":     {script: "exit 32", bail: true},
		"with an exit code":        {script: "exit 3", err: "Program exited with non-zero exit code: 3"},
		"by a signal":              {script: "kill -9 $$", err: "Program exited unexpectedly: signal: killed"},
		"before it starts":         {options: map[string]any{"nodeargs": `"`}, err: "runtime option nodeargs: EOF found when expecting closing quote"},
		"for its package manager":  {options: map[string]any{"packagemanager": "x"}, err: `runtime option packagemanager is "x": it must be one of auto, npm, yarn, pnpm, bun`},
		"well, without typescript": {script: `test -z "$PULUMI_NODEJS_TYPESCRIPT"`, options: map[string]any{"typescript": false}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := program(t, c.script)
			resp, err := newHost(t).Run(t.Context(), &pulumirpc.RunRequest{Pwd: dir, Info: info(t, dir, c.options)})
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetError() != c.err || resp.GetBail() != c.bail {
				t.Errorf("got %q, bail %v; want %q, bail %v", resp.GetError(), resp.GetBail(), c.err, c.bail)
			}
		})
	}
}

func TestRunWithoutTheSDK(t *testing.T) {
	dir := t.TempDir()
	resp, err := newHost(t).Run(t.Context(), &pulumirpc.RunRequest{Pwd: dir, Info: info(t, dir, nil)})
	if err != nil {
		t.Fatal(err)
	}
	if want := "the Pulumi SDK is not installed in " + dir + ": run `npm ci` there"; resp.GetError() != want {
		t.Errorf("got %q, want %q", resp.GetError(), want)
	}
}

func TestCancelEndsTheProgram(t *testing.T) {
	dir := program(t, `trap 'echo ended > ended; exit 1' TERM; echo > started; while :; do sleep 0.01; done`)
	h := newHost(t)
	done := make(chan *pulumirpc.RunResponse, 1)
	go func() {
		resp, _ := h.Run(t.Context(), &pulumirpc.RunRequest{Pwd: dir, Info: info(t, dir, nil)})
		done <- resp
	}()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(dir + "/started"); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the program did not start")
		}
	}
	if _, err := h.Cancel(t.Context(), &emptypb.Empty{}); err != nil {
		t.Fatal(err)
	}
	if resp := <-done; resp.GetError() != "Program exited with non-zero exit code: 1" {
		t.Errorf("response: %v", resp)
	}
	if _, err := os.Stat(dir + "/ended"); err != nil {
		t.Error("the program could not clean up")
	}
}

func TestPackages(t *testing.T) {
	dir := t.TempDir()
	modules := dir + "/node_modules/"
	write(t, dir+"/package.json", `{"dependencies": {"@pulumi/command": "^1"}, "devDependencies": {"plain": "*"}}`, 0o644)
	write(t, modules+"@pulumi/command/package.json",
		`{"name": "@pulumi/command", "version": "1.2.1", "pulumi": {"resource": true, "name": "command", "version": "1.2.1"}}`, 0o644)
	write(t, modules+"@pulumi/old/package.json",
		`{"name": "@pulumi/old", "version": "v3.0.0", "pulumi": {"resource": true, "server": "https://example.com"}}`, 0o644)
	write(t, modules+"plain/package.json", `{"name": "plain", "version": "1.0.0"}`, 0o644)
	write(t, modules+"plain/node_modules/@pulumi/command/package.json",
		`{"name": "@pulumi/command", "version": "1.0.0", "pulumi": {"resource": true}}`, 0o644)
	write(t, modules+"plain/node_modules/copy/package.json",
		`{"name": "@pulumi/command", "version": "1.0.0", "pulumi": {"resource": true}}`, 0o644)
	write(t, modules+"broken/package.json", `{`, 0o644)

	h := newHost(t)
	packages, err := h.GetRequiredPackages(t.Context(), &pulumirpc.GetRequiredPackagesRequest{Info: info(t, dir, nil)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range packages.GetPackages() {
		got = append(got, strings.TrimSpace(p.GetKind()+" "+p.GetName()+" "+p.GetVersion()+" "+p.GetServer()))
	}
	slices.Sort(got)
	want := []string{"resource command v1.0.0", "resource command v1.2.1", "resource old v3.0.0 https://example.com"}
	if !slices.Equal(got, want) {
		t.Errorf("packages:\n got %q\nwant %q", got, want)
	}

	dependencies := func(transitive bool) []string {
		resp, err := h.GetProgramDependencies(t.Context(),
			&pulumirpc.GetProgramDependenciesRequest{Info: info(t, dir, nil), TransitiveDependencies: transitive})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range resp.GetDependencies() {
			got = append(got, d.GetName()+" "+d.GetVersion())
		}
		return got
	}
	if got, want := dependencies(false), []string{"@pulumi/command 1.2.1", "plain 1.0.0"}; !slices.Equal(got, want) {
		t.Errorf("direct dependencies:\n got %q\nwant %q", got, want)
	}
	all := []string{"@pulumi/command 1.0.0", "@pulumi/command 1.2.1", "@pulumi/old v3.0.0", "plain 1.0.0"}
	if got := dependencies(true); !slices.Equal(got, all) {
		t.Errorf("all dependencies:\n got %q\nwant %q", got, all)
	}
}

func TestPackageManager(t *testing.T) {
	for lock, want := range map[string]string{
		"package-lock.json": "npm", "pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun",
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, lock), "", 0o644)
		if got := managerOf(dir); got != want {
			t.Errorf("%s: got %s, want %s", lock, got, want)
		}
	}
}
