// Package local has the command that runs here.
package local

import (
	"context"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"dgx-spark-serving/plugins/command/common"
)

// Command runs a command here when it is created, updated or deleted.
type Command struct{}

var (
	_ infer.CustomResource[CommandInputs, CommandOutputs] = (*Command)(nil)
	_ infer.CustomUpdate[CommandInputs, CommandOutputs]   = (*Command)(nil)
	_ infer.CustomDelete[CommandOutputs]                  = (*Command)(nil)
)

type CommandInputs struct {
	common.ResourceInputs
	BaseInputs
}

func (c *CommandInputs) Annotate(a infer.Annotator) { c.annotate(a) }

type CommandOutputs struct {
	CommandInputs
	BaseOutputs
}

func (*Command) Create(ctx context.Context, req infer.CreateRequest[CommandInputs],
) (infer.CreateResponse[CommandOutputs], error) {
	state := CommandOutputs{CommandInputs: req.Inputs}
	id, err := resource.NewUniqueHex(req.Name, 8, 0)
	if err == nil && !req.DryRun && state.Create != nil {
		err = state.run(ctx, *state.Create, &state.BaseOutputs)
	}
	return infer.CreateResponse[CommandOutputs]{ID: id, Output: state}, err
}

func (*Command) Update(ctx context.Context, req infer.UpdateRequest[CommandInputs, CommandOutputs],
) (infer.UpdateResponse[CommandOutputs], error) {
	state := CommandOutputs{CommandInputs: req.Inputs, BaseOutputs: req.State.BaseOutputs}
	var err error
	if command := state.OnUpdate(); !req.DryRun && command != nil {
		err = state.run(ctx, *command, &state.BaseOutputs)
	}
	return infer.UpdateResponse[CommandOutputs]{Output: state}, err
}

func (*Command) Delete(ctx context.Context, req infer.DeleteRequest[CommandOutputs]) (infer.DeleteResponse, error) {
	if req.State.Delete == nil {
		return infer.DeleteResponse{}, nil
	}
	return infer.DeleteResponse{}, req.State.run(ctx, *req.State.Delete, &req.State.BaseOutputs)
}

// Run is the function `local.run`: it runs at every preview and update.
type Run struct{}

type RunInputs struct {
	BaseInputs
	Command string `pulumi:"command"`
}

func (r *RunInputs) Annotate(a infer.Annotator) { r.annotate(a) }

type RunOutputs struct {
	RunInputs
	BaseOutputs
}

func (*Run) Invoke(ctx context.Context, req infer.FunctionRequest[RunInputs]) (infer.FunctionResponse[RunOutputs], error) {
	result := RunOutputs{RunInputs: req.Input}
	err := result.run(ctx, result.Command, &result.BaseOutputs)
	return infer.FunctionResponse[RunOutputs]{Output: result}, err
}
