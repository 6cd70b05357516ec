package main

import (
	"strings"
	"testing"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

const commandURN = resource.URN("urn:pulumi:stack::project::command:remote:Command::step")

func server(t *testing.T) integration.Server {
	t.Helper()
	provider, err := Provider()
	if err != nil {
		t.Fatal(err)
	}
	s, err := integration.NewServer(t.Context(), "command", semver.MustParse("1.2.1"), integration.WithProvider(provider))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func object(pairs map[string]property.Value) property.Map { return property.NewMap(pairs) }

// checked is what the engine keeps as a command's inputs.
func checked(t *testing.T, s integration.Server, create string, triggers ...property.Value) property.Map {
	t.Helper()
	resp, err := s.Check(p.CheckRequest{Urn: commandURN, Inputs: object(map[string]property.Value{
		"connection": property.New(map[string]property.Value{"host": property.New("spark")}),
		"create":     property.New(create),
		"triggers":   property.New(triggers),
	})})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Failures) != 0 {
		t.Fatal(resp.Failures)
	}
	return resp.Inputs
}

// The framework reads its own schema at run time: one type in it that it can't describe breaks all.
func TestSchemaNamesWhatTheSDKUses(t *testing.T) {
	resp, err := server(t).GetSchema(p.GetSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{
		"command:remote:Command", "command:remote:CopyToRemote", "command:local:Command", "command:local:run",
	} {
		if !strings.Contains(resp.Schema, `"`+token+`":`) {
			t.Errorf("%s is not in the schema", token)
		}
	}
}

func TestDefaultsAndSecrecy(t *testing.T) {
	in := checked(t, server(t), "true")
	connection := in.Get("connection")
	if !connection.Secret() {
		t.Error("connection is not secret")
	}
	want := property.New(map[string]property.Value{
		"host": property.New("spark"), "user": property.New("root"), "port": property.New(22.0),
		"dialErrorLimit": property.New(10.0), "perDialTimeout": property.New(15.0),
	}).WithSecret(true)
	if !connection.Equals(want) {
		t.Errorf("connection: got %v, want %v", connection, want)
	}
	if !in.Get("addPreviousOutputInEnv").Equals(property.New(true)) {
		t.Errorf("addPreviousOutputInEnv: %v", in.Get("addPreviousOutputInEnv"))
	}
}

// A changed element of triggers is reported as a change; that it replaces is asked for by the SDK, which sets
// `replaceOnChanges: ["triggers[*]"]` on each command. A list that comes or goes replaces by itself.
func TestDiff(t *testing.T) {
	s := server(t)
	old := checked(t, s, "true", property.New("a"))
	state := old.Set("stdout", property.New("")).Set("stderr", property.New(""))
	for name, c := range map[string]struct {
		news property.Map
		want map[string]p.DiffKind
	}{
		"nothing":              {old, map[string]p.DiffKind{}},
		"a trigger":            {checked(t, s, "true", property.New("b")), map[string]p.DiffKind{"triggers[0]": p.Update}},
		"one more trigger":     {checked(t, s, "true", property.New("a"), property.New("b")), map[string]p.DiffKind{"triggers[1]": p.Add}},
		"no triggers any more": {old.Delete("triggers"), map[string]p.DiffKind{"triggers": p.DeleteReplace}},
		"the create command":   {checked(t, s, "false", property.New("a")), map[string]p.DiffKind{"create": p.Update}},
	} {
		resp, err := s.Diff(p.DiffRequest{ID: "id", Urn: commandURN, State: state, OldInputs: old, Inputs: c.news})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.DetailedDiff) != len(c.want) || resp.HasChanges != (len(c.want) > 0) {
			t.Errorf("%s: got %v, want %v", name, resp.DetailedDiff, c.want)
		}
		for key, kind := range c.want {
			if resp.DetailedDiff[key].Kind != kind {
				t.Errorf("%s: got %v, want %v", name, resp.DetailedDiff, c.want)
			}
		}
	}
}

// What a step prints is not known before it has run, at creation and when anything changes.
func TestPreviewOutputsAreUnknown(t *testing.T) {
	s := server(t)
	in := checked(t, s, "true")
	created, err := s.Create(p.CreateRequest{Urn: commandURN, Properties: in, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	updated, err := s.Update(p.UpdateRequest{
		ID: "id", Urn: commandURN, DryRun: true, Inputs: checked(t, s, "false"), OldInputs: in,
		State: in.Set("stdout", property.New("old")).Set("stderr", property.New("old")),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, outputs := range []property.Map{created.Properties, updated.Properties} {
		for _, name := range []string{"stdout", "stderr"} {
			if !outputs.Get(name).IsComputed() {
				t.Errorf("%s: %v, want unknown", name, outputs.Get(name))
			}
		}
	}
}
