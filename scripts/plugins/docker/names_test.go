package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	shim "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
)

// The Node SDK from npm is made for the official plugin. A field that is called otherwise here would be lost without a
// word, so all of the SDK's inputs are compared: names, kinds, whether they are lists, nested ones too.

const sdk = "../../../node_modules/@pulumi/docker"

var (
	interfaceText = regexp.MustCompile(`(?ms)^export interface (\w+) \{\n(.*?)^\}`)
	comment       = regexp.MustCompile(`(?s)/\*\*.*?\*/`)
	field         = regexp.MustCompile(`(?ms)^    (\w+)\??: (.*?);$`)
)

type declarations map[string]map[string]string // interface -> field -> its type

func readDeclarations(t *testing.T, file string) declarations {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(sdk, file))
	if err != nil {
		t.Fatalf("the SDK has to be installed, by `npm ci`: %v", err)
	}
	found := declarations{}
	for _, i := range interfaceText.FindAllStringSubmatch(string(text), -1) {
		found[i[1]] = map[string]string{}
		for _, f := range field.FindAllStringSubmatch(comment.ReplaceAllString(i[2], ""), -1) {
			// Every part may be an input of its own; what remains is `inputs.ContainerLabel[]`, `string`, …
			kind := strings.NewReplacer("pulumi.Input", "", "<", "", ">", "", " | undefined", "").Replace(f[2])
			found[i[1]][f[1]] = strings.Join(strings.Fields(kind), " ")
		}
	}
	return found
}

// kindOf says in the SDK's words what a field takes; nested is its element's fields, if it has some.
func kindOf(s shim.Schema, info *tfbridge.SchemaInfo) (kind string, nested shim.SchemaMap) {
	switch s.Type() {
	case shim.TypeBool:
		return "boolean", nil
	case shim.TypeInt, shim.TypeFloat:
		return "number", nil
	case shim.TypeString:
		return "string", nil
	case shim.TypeMap:
		return "{ [key: string]: string", nil // as far as readDeclarations reads
	}
	switch element := s.Elem().(type) {
	case shim.Resource:
		kind, nested = "object", element.Schema()
	case shim.Schema:
		kind, _ = kindOf(element, nil)
	}
	if !tfbridge.IsMaxItemsOne(s, info) {
		kind += "[]"
	}
	return kind, nested
}

// compare returns each difference between an interface and what the bridge makes of a schema.
func compare(
	where, name string, schema shim.SchemaMap, infos map[string]*tfbridge.SchemaInfo, own, inputs declarations,
) []string {
	want, ok := own[name]
	if !ok {
		return []string{fmt.Sprintf("%s: the SDK has no interface %s", where, name)}
	}
	want = maps.Clone(want)
	var wrong []string
	schema.Range(func(tfName string, s shim.Schema) bool {
		pulumiName := tfbridge.TerraformToPulumiNameV2(tfName, schema, infos)
		if !s.Optional() && !s.Required() {
			delete(want, pulumiName) // an output, which the SDK has in some nested types
			return true
		}
		path := where + "." + pulumiName
		wantKind, ok := want[pulumiName]
		if !ok {
			wrong = append(wrong, path+": not in the SDK")
			return true
		}
		delete(want, pulumiName)
		kind, nested := kindOf(s, infos[tfName])
		if nested == nil {
			if kind != wantKind {
				wrong = append(wrong, fmt.Sprintf("%s: %s here, %s in the SDK", path, kind, wantKind))
			}
			return true
		}
		element, isList := strings.CutSuffix(wantKind, "[]")
		if isList != strings.HasSuffix(kind, "[]") {
			wrong = append(wrong, fmt.Sprintf("%s: %s here, %s in the SDK", path, kind, wantKind))
		}
		wrong = append(wrong, compare(path, strings.TrimPrefix(element, "inputs."), nested, nil, inputs, inputs)...)
		return true
	})
	for _, missing := range slices.Sorted(maps.Keys(want)) {
		wrong = append(wrong, fmt.Sprintf("%s.%s: only in the SDK", where, missing))
	}
	return wrong
}

func TestNamesAreTheSDKs(t *testing.T) {
	prov := Provider()
	inputs := readDeclarations(t, "types/input.d.ts")
	for tfName, info := range prov.Resources {
		_, name, _ := strings.Cut(string(info.Tok), ":")
		file, class, _ := strings.Cut(strings.TrimPrefix(name, "index/"), ":")
		schema := prov.P.ResourcesMap().Get(tfName).Schema()
		for _, w := range compare(class, class+"Args", schema, info.Fields, readDeclarations(t, file+".d.ts"), inputs) {
			t.Error(w)
		}
	}
	for _, w := range compare("Provider", "ProviderArgs", prov.P.Schema(), prov.Config,
		readDeclarations(t, "provider.d.ts"), inputs) {
		t.Error(w)
	}
}

func TestVersionIsTheSDKs(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(sdk, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"version": "5.2.0"`) {
		t.Error("the SDK is no longer 5.2.0: look for the upstream version that its plugin is made from (README.md)")
	}
}
