package remote

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi-go-provider/infer"

	"dgx-spark-serving/plugins/command/common"
)

func inputs(s *testServer, create string) CommandInputs {
	return CommandInputs{ResourceInputs: common.ResourceInputs{Create: &create}, Connection: s.connection()}
}

func create(t *testing.T, in CommandInputs) (CommandOutputs, error) {
	t.Helper()
	resp, err := (&Command{}).Create(t.Context(), infer.CreateRequest[CommandInputs]{Name: "step", Inputs: in})
	return resp.Output, err
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	check(t, "error", err.Error(), want)
}

func checkLines(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestOutputsAndLog(t *testing.T) {
	log := recordLog(t)
	out, err := create(t, inputs(startServer(t, nil), `printf 'one\ntwo\n\n'; printf 'three' >&2`))
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "one\ntwo\n") // one newline of two is cut
	check(t, "stderr", out.Stderr, "three")
	got := log.lines()
	slices.Sort(got) // the streams are independent
	checkLines(t, "log", got, "INFO ", "INFO one", "INFO three", "INFO two")
}

func TestLinesComeWhileTheCommandRuns(t *testing.T) {
	log := recordLog(t)
	fifo := t.TempDir() + "/go-on"
	in := inputs(startServer(t, nil), "mkfifo "+fifo+"; echo first; read line < "+fifo+"; echo $line")
	done := make(chan error, 1)
	var out CommandOutputs
	go func() {
		var err error
		out, err = create(t, in)
		done <- err
	}()
	eventually(t, func() bool { return slices.Contains(log.lines(), "INFO first") })
	writeFile(t, fifo, "second\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "first\nsecond")
}

func TestLogging(t *testing.T) {
	s := startServer(t, nil)
	for logging, want := range map[common.Logging][]string{
		common.LogStdout: {"INFO out"}, common.LogStderr: {"INFO err"}, common.LogNone: nil,
		common.LogStdoutAndStderr: {"INFO err", "INFO out"},
	} {
		log := recordLog(t)
		in := inputs(s, "echo out; echo err >&2")
		in.Logging = &logging
		out, err := create(t, in)
		if err != nil {
			t.Fatal(err)
		}
		check(t, "stdout", out.Stdout, "out")
		check(t, "stderr", out.Stderr, "err")
		got := log.lines()
		slices.Sort(got)
		checkLines(t, string(logging), got, want...)
	}
}

func TestExitCode(t *testing.T) {
	_, err := create(t, inputs(startServer(t, nil), `echo "so far"; exit 3`))
	checkError(t, err, "Process exited with status 3: running \"echo \\\"so far\\\"; exit 3\":\nso far\n")
}

func TestStdin(t *testing.T) {
	in := inputs(startServer(t, nil), "cat")
	in.Stdin = ref("a secret\n")
	out, err := create(t, in)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "a secret")
}

func TestEnvironment(t *testing.T) {
	s := startServer(t, func(s *testServer) { s.acceptEnv = []string{"WANTED"} })
	in := inputs(s, `echo "$WANTED"`)
	in.Environment = map[string]string{"WANTED": "it's here"}
	out, err := create(t, in)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "it's here")

	log := recordLog(t)
	in.Environment = map[string]string{"REFUSED": "x"}
	_, err = create(t, in)
	checkError(t, err, `could not set environment variable "REFUSED": ssh: setenv failed`)
	if got := log.lines(); len(got) != 3 || !strings.HasPrefix(got[0], "ERROR Unable to set 'REFUSED'. ") {
		t.Errorf("log: %q", got)
	}
	checkLines(t, "commands", s.ran(), `echo "$WANTED"`) // nothing was run the second time
}

func update(t *testing.T, old CommandOutputs, in CommandInputs) (CommandOutputs, error) {
	t.Helper()
	resp, err := (&Command{}).Update(t.Context(),
		infer.UpdateRequest[CommandInputs, CommandOutputs]{ID: "id", State: old, Inputs: in})
	return resp.Output, err
}

func TestPreviousOutput(t *testing.T) {
	s := startServer(t, func(s *testServer) { s.acceptEnv = []string{common.PreviousStdout} })
	in := inputs(s, `echo "$PULUMI_COMMAND_STDOUT and $PULUMI_COMMAND_STDERR"`)
	old := CommandOutputs{CommandInputs: in, Stdout: "last out", Stderr: "last err"}

	log := recordLog(t)
	out, err := update(t, old, in)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "last out and ") // a refusal is only a warning
	if got := log.lines(); !strings.HasPrefix(got[0], "WARN Unable to set 'PULUMI_COMMAND_STDERR'. ") {
		t.Errorf("log: %q", got)
	}

	log = recordLog(t)
	in.AddPreviousOutputInEnv = ref(false)
	if out, err = update(t, old, in); err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, " and ")
	checkLines(t, "log", log.lines(), "INFO  and ")
}

func TestUpdateRunsUpdateElseCreateElseNothing(t *testing.T) {
	s := startServer(t, nil)
	old := CommandOutputs{CommandInputs: inputs(s, "echo create"), Stdout: "kept"}

	in := inputs(s, "echo create")
	in.Update = ref("echo update")
	out, err := update(t, old, in)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "update")

	in.Update = nil
	if out, err = update(t, old, in); err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "create")

	in.Create = nil
	if out, err = update(t, old, in); err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", out.Stdout, "kept")
	checkLines(t, "commands", s.ran(), "echo update", "echo create")
}

func TestDelete(t *testing.T) {
	s := startServer(t, nil)
	state := CommandOutputs{CommandInputs: inputs(s, "echo create")}
	remove := func() error {
		_, err := (&Command{}).Delete(t.Context(), infer.DeleteRequest[CommandOutputs]{ID: "id", State: state})
		return err
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	checkLines(t, "commands", s.ran())
	state.Delete = ref("echo delete")
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	checkLines(t, "commands", s.ran(), "echo delete")
}

func TestPreviewRunsNothing(t *testing.T) {
	s := startServer(t, nil)
	in := inputs(s, "echo create")
	_, err := (&Command{}).Create(t.Context(), infer.CreateRequest[CommandInputs]{Name: "step", Inputs: in, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = (&Command{}).Update(t.Context(), infer.UpdateRequest[CommandInputs, CommandOutputs]{Inputs: in, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	s.checkLogins(t, 0)
}

func TestCancelEndsTheRemoteCommand(t *testing.T) {
	log := recordLog(t)
	s := startServer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	const command = "trap 'echo ended; exit 0' TERM; echo started; sleep 300 & wait"
	go func() {
		_, err := (&Command{}).Create(ctx, infer.CreateRequest[CommandInputs]{Name: "step", Inputs: inputs(s, command)})
		done <- err
	}()
	eventually(t, func() bool { return slices.Contains(log.lines(), "INFO started") })
	cancel()
	checkError(t, <-done, "cancelled: context canceled: running \""+command+"\":\nstarted\nended\n")
	checkLines(t, "signals", s.gotSignals(), "TERM")
}
