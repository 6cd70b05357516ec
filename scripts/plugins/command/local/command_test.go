package local

import (
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/pulumi/pulumi-go-provider/infer"

	"dgx-spark-serving/plugins/command/common"
)

func ref[T any](v T) *T { return &v }

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestLifeCycle(t *testing.T) {
	in := CommandInputs{
		ResourceInputs: common.ResourceInputs{
			Create: ref("echo created; cat >&2"), Update: ref(`echo "after $PULUMI_COMMAND_STDOUT"`), Delete: ref(`exit 4`),
		},
		BaseInputs: BaseInputs{Stdin: ref("from stdin"), Environment: &map[string]string{"A": "b"}},
	}
	created, err := (&Command{}).Create(t.Context(), infer.CreateRequest[CommandInputs]{Name: "step", Inputs: in})
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", created.Output.Stdout, "created")
	check(t, "stderr", created.Output.Stderr, "from stdin")

	updated, err := (&Command{}).Update(t.Context(),
		infer.UpdateRequest[CommandInputs, CommandOutputs]{State: created.Output, Inputs: in})
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", updated.Output.Stdout, "after created")

	_, err = (&Command{}).Delete(t.Context(), infer.DeleteRequest[CommandOutputs]{State: updated.Output})
	if err == nil {
		t.Fatal("no error")
	}
	check(t, "error", err.Error(), "exit status 4: running \"exit 4\":\n")
}

func TestRunInvoke(t *testing.T) {
	resp, err := (&Run{}).Invoke(t.Context(), infer.FunctionRequest[RunInputs]{Input: RunInputs{
		Command: "print('x' * 3)", BaseInputs: BaseInputs{Interpreter: &[]string{"/bin/sh", "-c", `echo "$0"`}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	check(t, "stdout", resp.Output.Stdout, "print('x' * 3)")
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	in := BaseInputs{Dir: &dir, AssetPaths: &[]string{"**", "!b/*"}, ArchivePaths: &[]string{"a*"}}
	var out BaseOutputs
	if err := in.run(t.Context(), "mkdir b; touch a1 a2 b/c", &out); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(*out.Assets)); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Errorf("assets: %q", got)
	}
	if got := slices.Sorted(maps.Keys(out.Archive.Archive.Assets)); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Errorf("archive: %q", got)
	}
	if _, err := os.Stat(dir + "/b/c"); err != nil {
		t.Error(err)
	}
}
