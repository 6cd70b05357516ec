package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi-go-provider/infer/types"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// CopyToRemote copies a file, a directory or a text to a remote host. It leaves the copy there when it is deleted.
type CopyToRemote struct{}

var (
	_ infer.CustomResource[CopyToRemoteInputs, CopyToRemoteOutputs] = (*CopyToRemote)(nil)
	_ infer.CustomCheck[CopyToRemoteInputs]                         = (*CopyToRemote)(nil)
	_ infer.CustomUpdate[CopyToRemoteInputs, CopyToRemoteOutputs]   = (*CopyToRemote)(nil)
)

type CopyToRemoteInputs struct {
	Connection *Connection          `pulumi:"connection" provider:"secret"`
	Triggers   *[]any               `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Source     types.AssetOrArchive `pulumi:"source"`
	RemotePath string               `pulumi:"remotePath"`
}

type CopyToRemoteOutputs struct{ CopyToRemoteInputs }

func (c *CopyToRemoteInputs) hash() string {
	if c.Source.Archive != nil {
		return c.Source.Archive.Hash
	}
	return c.Source.Asset.Hash
}

func (*CopyToRemote) Check(ctx context.Context, req infer.CheckRequest,
) (infer.CheckResponse[CopyToRemoteInputs], error) {
	inputs, failures, err := infer.DefaultCheck[CopyToRemoteInputs](ctx, req.NewInputs)
	if err != nil {
		return infer.CheckResponse[CopyToRemoteInputs]{Inputs: inputs, Failures: failures}, err
	}
	fail := func(property, reason string) {
		failures = append(failures, p.CheckFailure{Property: property, Reason: reason})
	}
	asset, archive := inputs.Source.Asset, inputs.Source.Archive
	if asset != nil && archive != nil {
		fail("asset", "only one of asset or archive can be set")
	}
	if asset == nil && archive == nil {
		fail("asset", "either asset or archive must be set")
	}
	if asset != nil && !asset.IsPath() && !asset.IsText() {
		fail("asset", "asset must be a path-based file asset or a text asset")
	}
	if archive != nil && !archive.IsPath() {
		fail("archive", "archive must be a path to a file or directory")
	}
	return infer.CheckResponse[CopyToRemoteInputs]{Inputs: inputs, Failures: failures}, nil
}

func (*CopyToRemote) Create(ctx context.Context, req infer.CreateRequest[CopyToRemoteInputs],
) (infer.CreateResponse[CopyToRemoteOutputs], error) {
	resp := infer.CreateResponse[CopyToRemoteOutputs]{Output: CopyToRemoteOutputs{req.Inputs}}
	if req.DryRun {
		return resp, nil
	}
	if err := req.Inputs.copy(ctx); err != nil {
		return resp, err
	}
	var err error
	resp.ID, err = resource.NewUniqueHex("", 8, 0)
	return resp, err
}

func (*CopyToRemote) Update(ctx context.Context, req infer.UpdateRequest[CopyToRemoteInputs, CopyToRemoteOutputs],
) (infer.UpdateResponse[CopyToRemoteOutputs], error) {
	resp := infer.UpdateResponse[CopyToRemoteOutputs]{Output: CopyToRemoteOutputs{req.Inputs}}
	changed := req.Inputs.hash() != req.State.hash() || req.Inputs.RemotePath != req.State.RemotePath
	if req.DryRun || !changed {
		return resp, nil
	}
	return resp, req.Inputs.copy(ctx)
}

func (c *CopyToRemoteInputs) copy(ctx context.Context) error {
	client, err := c.Connection.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	unlink := context.AfterFunc(ctx, func() { client.Close() })
	defer unlink()

	// Each file is written by one ReadFrom: that is the case in which concurrent writes are safe.
	session, err := sftp.NewClient(client.Client, sftp.UseConcurrentWrites(true))
	if err != nil {
		return client.explain(err)
	}
	defer session.Close()

	r := remoteFiles{session}
	switch {
	case c.Source.Archive != nil:
		err = r.copy(c.Source.Archive.Path, c.RemotePath)
	case c.Source.Asset.IsText():
		err = r.writeText(c.Source.Asset.Text, c.RemotePath)
	default:
		err = r.copy(c.Source.Asset.Path, c.RemotePath)
	}
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("cancelled: %w", ctx.Err())
	}
	return client.explain(err)
}

// remoteFiles writes files on the host.
type remoteFiles struct{ *sftp.Client }

// copy follows scp:
//
//	source | destination is a directory | is not there | is a file
//	dir    | destination/dir            | same         | error
//	dir/   | its content below          | same         | error
//	file   | destination/file           | destination  | overwritten
func (r remoteFiles) copy(source, destination string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	isDir, err := r.isDir(destination)
	if err != nil {
		return err
	}
	if info.IsDir() {
		if !strings.HasSuffix(source, "/") {
			if err := r.makeDir(destination); err != nil {
				return err
			}
			destination = path.Join(destination, filepath.Base(source))
		}
		return r.copyDir(source, destination)
	}
	if isDir {
		destination = path.Join(destination, filepath.Base(source))
	}
	return r.copyFile(source, destination)
}

// copyDir leaves alone what else is in an existing directory.
func (r remoteFiles) copyDir(source, destination string) error {
	return fs.WalkDir(os.DirFS(source), ".", func(rel string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := path.Join(destination, rel)
		if entry.IsDir() {
			return r.makeDir(target)
		}
		return r.copyFile(filepath.Join(source, rel), target)
	})
}

func (r remoteFiles) copyFile(source, destination string) error {
	local, err := os.Open(source)
	if err != nil {
		return err
	}
	defer local.Close()
	return r.write(local, destination)
}

func (r remoteFiles) writeText(text, destination string) error {
	isDir, err := r.isDir(destination)
	if err != nil {
		return err
	}
	if isDir { // a text has no name of its own
		return fmt.Errorf("remote path %s is a directory; when using a text asset, remotePath must be a file path", destination)
	}
	return r.write(strings.NewReader(text), destination)
}

func (r remoteFiles) write(content io.Reader, destination string) error {
	if err := r.makeDir(path.Dir(destination)); err != nil {
		return err
	}
	file, err := r.Create(destination)
	if err != nil {
		return fmt.Errorf("failed to create remote file %s: %w", destination, err)
	}
	if _, err = file.ReadFrom(content); err == nil {
		err = file.Close()
	} else {
		file.Close()
	}
	if err != nil {
		return fmt.Errorf("failed to copy to remote path %s: %w", destination, err)
	}
	return nil
}

// makeDir makes a directory and its parents; one that is there already is fine.
func (r remoteFiles) makeDir(dir string) error {
	info, err := r.stat(dir)
	switch {
	case err != nil:
		return err
	case info != nil && !info.IsDir():
		return fmt.Errorf("remote path %s exists but is not a directory", dir)
	case info != nil:
		return nil
	}
	if err := r.MkdirAll(dir); err != nil {
		return fmt.Errorf("failed to create remote directory %s: %w", dir, err)
	}
	return nil
}

func (r remoteFiles) isDir(name string) (bool, error) {
	info, err := r.stat(name)
	return info != nil && info.IsDir(), err
}

// stat returns nil for what is not there.
func (r remoteFiles) stat(name string) (fs.FileInfo, error) {
	info, err := r.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to stat remote path %s: %w", name, err)
	}
	return info, nil
}
