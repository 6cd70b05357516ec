package remote

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/archive"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/asset"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
)

// tree is the files below dir, as `name=content`.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		found = append(found, name+"="+string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func file(t *testing.T, path string) types.AssetOrArchive {
	t.Helper()
	a, err := asset.FromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return types.AssetOrArchive{Asset: a}
}

func text(t *testing.T, content string) types.AssetOrArchive {
	t.Helper()
	a, err := asset.FromText(content)
	if err != nil {
		t.Fatal(err)
	}
	return types.AssetOrArchive{Asset: a}
}

func folder(t *testing.T, path string) types.AssetOrArchive {
	t.Helper()
	a, err := archive.FromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	return types.AssetOrArchive{Archive: a}
}

// sourceTree makes src/top and src/sub/deep.
func sourceTree(t *testing.T) string {
	t.Helper()
	src := filepath.Join(t.TempDir(), "src")
	if err := os.MkdirAll(filepath.Join(src, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(src, "top"), "1")
	writeFile(t, filepath.Join(src, "sub", "deep"), "2")
	return src
}

func TestCopy(t *testing.T) {
	src := sourceTree(t)
	for _, c := range []struct {
		name   string
		source types.AssetOrArchive
		to     string // below the destination, which has dir/ and a file
		want   []string
		err    string
	}{
		{name: "file to a new path with parents", source: file(t, src+"/top"), to: "a/b/c", want: []string{"a/b/c=1", "file=old"}},
		{name: "file into a directory", source: file(t, src+"/top"), to: "dir", want: []string{"dir/top=1", "file=old"}},
		{name: "file over a file", source: file(t, src+"/top"), to: "file", want: []string{"file=1"}},
		{name: "directory to a new path", source: folder(t, src), to: "new/x",
			want: []string{"file=old", "new/x/src/sub/deep=2", "new/x/src/top=1"}},
		{name: "directory into a directory", source: folder(t, src), to: "dir",
			want: []string{"dir/src/sub/deep=2", "dir/src/top=1", "file=old"}},
		{name: "content into a directory", source: folder(t, src+"/"), to: "dir",
			want: []string{"dir/sub/deep=2", "dir/top=1", "file=old"}},
		{name: "content to a new path", source: folder(t, src+"/"), to: "new",
			want: []string{"file=old", "new/sub/deep=2", "new/top=1"}},
		{name: "directory onto a file", source: folder(t, src), to: "file", want: []string{"file=old"},
			err: "remote path DEST/file exists but is not a directory"},
		{name: "content onto a file", source: folder(t, src+"/"), to: "file", want: []string{"file=old"},
			err: "remote path DEST/file exists but is not a directory"},
		{name: "text to a new path with parents", source: text(t, "hello\n"), to: "a/b", want: []string{"a/b=hello\n", "file=old"}},
		{name: "text over a file", source: text(t, "n"), to: "file", want: []string{"file=n"}},
		{name: "text onto a directory", source: text(t, "n"), to: "dir", want: []string{"file=old"},
			err: "remote path DEST/dir is a directory; when using a text asset, remotePath must be a file path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dest := t.TempDir()
			if err := os.Mkdir(filepath.Join(dest, "dir"), 0o755); err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(dest, "file"), "old")
			in := CopyToRemoteInputs{
				Connection: startServer(t, nil).connection(), Source: c.source, RemotePath: filepath.Join(dest, c.to),
			}
			for range 2 { // to copy again is always fine
				resp, err := (&CopyToRemote{}).Create(t.Context(), infer.CreateRequest[CopyToRemoteInputs]{Inputs: in})
				switch {
				case c.err != "":
					checkError(t, err, strings.ReplaceAll(c.err, "DEST", dest))
				case err != nil:
					t.Fatal(err)
				case resp.ID == "":
					t.Error("no id")
				}
				if c.name == "directory to a new path" || c.name == "content to a new path" {
					break // the second time it is no longer new
				}
			}
			checkLines(t, "files", tree(t, dest), c.want...)
		})
	}
}

func TestCopyAgainOnChange(t *testing.T) {
	dest, s := t.TempDir(), startServer(t, nil)
	in := CopyToRemoteInputs{Connection: s.connection(), Source: text(t, "one"), RemotePath: dest + "/a"}
	state := CopyToRemoteOutputs{in}
	update := func(in CopyToRemoteInputs) {
		t.Helper()
		resp, err := (&CopyToRemote{}).Update(t.Context(),
			infer.UpdateRequest[CopyToRemoteInputs, CopyToRemoteOutputs]{ID: "id", State: state, Inputs: in})
		if err != nil {
			t.Fatal(err)
		}
		state = resp.Output
	}
	update(in)
	checkLines(t, "nothing changed", tree(t, dest))
	in.Connection.PerDialTimeout = ref(11)
	update(in)
	checkLines(t, "only the connection changed", tree(t, dest))
	in.Source = text(t, "two")
	update(in)
	checkLines(t, "the content changed", tree(t, dest), "a=two")
	in.RemotePath = dest + "/b"
	update(in)
	checkLines(t, "the path changed", tree(t, dest), "a=two", "b=two")
}

func TestCopyPreviewDoesNothing(t *testing.T) {
	s := startServer(t, nil)
	in := CopyToRemoteInputs{Connection: s.connection(), Source: text(t, "one"), RemotePath: t.TempDir() + "/a"}
	_, err := (&CopyToRemote{}).Create(t.Context(), infer.CreateRequest[CopyToRemoteInputs]{Inputs: in, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	s.checkLogins(t, 0)
}

func TestCopyCheck(t *testing.T) {
	for name, c := range map[string]struct {
		source property.Value
		want   []p.CheckFailure
	}{
		"file": {property.New(&asset.Asset{Path: "x"}), nil},
		"text": {property.New(&asset.Asset{Text: "x"}), nil},
		"address": {property.New(&asset.Asset{URI: "https://x"}),
			[]p.CheckFailure{{Property: "asset", Reason: "asset must be a path-based file asset or a text asset"}}},
		"folder": {property.New(&archive.Archive{Path: "x"}), nil},
		"archive at an address": {property.New(&archive.Archive{URI: "https://x"}),
			[]p.CheckFailure{{Property: "archive", Reason: "archive must be a path to a file or directory"}}},
	} {
		resp, err := (&CopyToRemote{}).Check(context.Background(), infer.CheckRequest{NewInputs: property.NewMap(
			map[string]property.Value{
				"connection": property.New(map[string]property.Value{"host": property.New("h")}),
				"remotePath": property.New("/x"),
				"source":     c.source,
			})})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(resp.Failures, c.want) {
			t.Errorf("%s: got %v, want %v", name, resp.Failures, c.want)
		}
	}
}
