// Package common holds what remote and local commands share.
package common

// ResourceInputs say when something runs.
type ResourceInputs struct {
	Triggers *[]any  `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Create   *string `pulumi:"create,optional"`
	Update   *string `pulumi:"update,optional"`
	Delete   *string `pulumi:"delete,optional"`
}

// OnUpdate is the command of an update: `update`, else `create`, else nil.
func (r ResourceInputs) OnUpdate() *string {
	if r.Update != nil {
		return r.Update
	}
	return r.Create
}

// Names under which a command finds what its last run printed.
const (
	PreviousStdout = "PULUMI_COMMAND_STDOUT"
	PreviousStderr = "PULUMI_COMMAND_STDERR"
)
