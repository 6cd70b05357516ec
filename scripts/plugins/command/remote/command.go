package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"golang.org/x/crypto/ssh"

	"dgx-spark-serving/plugins/command/common"
)

// timeToEnd is how long a cancelled command may take before its connection is cut.
const timeToEnd = 5 * time.Second

// Command runs a command on a remote host when it is created, updated or deleted.
//
// There is no WireDependencies: each output depends on every input, so a preview of a change shows stdout as unknown.
type Command struct{}

var (
	_ infer.CustomResource[CommandInputs, CommandOutputs] = (*Command)(nil)
	_ infer.CustomUpdate[CommandInputs, CommandOutputs]   = (*Command)(nil)
	_ infer.CustomDelete[CommandOutputs]                  = (*Command)(nil)
)

type CommandInputs struct {
	common.ResourceInputs
	Stdin                  *string           `pulumi:"stdin,optional"`
	Logging                *common.Logging   `pulumi:"logging,optional"`
	Connection             *Connection       `pulumi:"connection" provider:"secret"`
	Environment            map[string]string `pulumi:"environment,optional"`
	AddPreviousOutputInEnv *bool             `pulumi:"addPreviousOutputInEnv,optional"`
}

func (c *CommandInputs) Annotate(a infer.Annotator) { a.SetDefault(&c.AddPreviousOutputInEnv, true) }

type CommandOutputs struct {
	CommandInputs
	Stdout string `pulumi:"stdout"`
	Stderr string `pulumi:"stderr"`
}

func (*Command) Create(ctx context.Context, req infer.CreateRequest[CommandInputs],
) (infer.CreateResponse[CommandOutputs], error) {
	state := CommandOutputs{CommandInputs: req.Inputs}
	id, err := resource.NewUniqueHex(req.Name, 8, 0)
	if err == nil && !req.DryRun && state.Create != nil {
		err = state.run(ctx, *state.Create)
	}
	return infer.CreateResponse[CommandOutputs]{ID: id, Output: state}, err
}

func (*Command) Update(ctx context.Context, req infer.UpdateRequest[CommandInputs, CommandOutputs],
) (infer.UpdateResponse[CommandOutputs], error) {
	state := CommandOutputs{CommandInputs: req.Inputs, Stdout: req.State.Stdout, Stderr: req.State.Stderr}
	var err error
	if command := state.OnUpdate(); !req.DryRun && command != nil {
		err = state.run(ctx, *command)
	}
	return infer.UpdateResponse[CommandOutputs]{Output: state}, err
}

func (*Command) Delete(ctx context.Context, req infer.DeleteRequest[CommandOutputs]) (infer.DeleteResponse, error) {
	if req.State.Delete == nil {
		return infer.DeleteResponse{}, nil
	}
	return infer.DeleteResponse{}, req.State.run(ctx, *req.State.Delete)
}

// run runs a command and keeps what it printed.
func (c *CommandOutputs) run(ctx context.Context, command string) error {
	client, err := c.Connection.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := client.NewSession()
	if err != nil {
		return client.explain(err)
	}
	defer session.Close()

	if err := c.setEnvironment(ctx, session); err != nil {
		return client.explain(err)
	}
	if c.Stdin != nil && *c.Stdin != "" {
		session.Stdin = strings.NewReader(*c.Stdin)
	}
	output := common.NewOutput(ctx, c.Logging)
	session.Stdout, session.Stderr = output.Stdout, output.Stderr

	// When the engine cancels, what runs on the host is ended too, so that no orphan works on there.
	unlink := context.AfterFunc(ctx, func() {
		_ = session.Signal(ssh.SIGTERM) // best effort: the connection is cut anyway
		time.AfterFunc(timeToEnd, func() { client.Close() })
	})
	err = client.explain(session.Run(command))
	output.Flush()
	if !unlink() {
		err = fmt.Errorf("cancelled: %w", ctx.Err())
	}
	if err != nil {
		return output.Failure(err, command)
	}
	c.Stdout, c.Stderr = output.Stdout.String(), output.Stderr.String()
	return nil
}

// setEnvironment insists on the variables that were asked for. Those with the last run's output are offered only: few
// servers accept them.
func (c *CommandOutputs) setEnvironment(ctx context.Context, session *ssh.Session) error {
	for name, value := range c.Environment {
		if err := session.Setenv(name, value); err != nil {
			p.GetLogger(ctx).Error(refusal(name))
			return fmt.Errorf("could not set environment variable %q: %w", name, err)
		}
	}
	if !or(c.AddPreviousOutputInEnv, true) {
		return nil
	}
	for name, value := range map[string]string{common.PreviousStdout: c.Stdout, common.PreviousStderr: c.Stderr} {
		if value == "" {
			continue
		}
		if err := session.Setenv(name, value); err != nil {
			p.GetLogger(ctx).Warning(refusal(name))
		}
	}
	return nil
}

func refusal(name string) string {
	return fmt.Sprintf("Unable to set '%s'. This only works if your SSH server is configured to accept\n"+
		"\tthese variables via AcceptEnv. Alternatively, if a Bash-like shell runs the command on the remote host, you could\n"+
		"\tprefix the command itself with the variables in the form 'VAR=value command'", name)
}
