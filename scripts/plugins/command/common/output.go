package common

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
)

// Logging says which of a command's streams are shown while it runs.
type Logging string

const (
	LogStdout          Logging = "stdout"
	LogStderr          Logging = "stderr"
	LogStdoutAndStderr Logging = "stdoutAndStderr"
	LogNone            Logging = "none"
)

func (Logging) Values() []infer.EnumValue[Logging] {
	var values []infer.EnumValue[Logging]
	for _, l := range []Logging{LogStdout, LogStderr, LogStdoutAndStderr, LogNone} {
		values = append(values, infer.EnumValue[Logging]{Name: string(l), Value: l})
	}
	return values
}

func (l *Logging) shows(stream Logging) bool {
	return l == nil || *l == LogStdoutAndStderr || *l == stream
}

// Output takes what a command prints. Lines go to the engine as they come.
type Output struct {
	Stdout, Stderr *Stream

	mu   sync.Mutex // the two streams are written at the same time
	both bytes.Buffer
}

// NewOutput shows the streams that logging asks for.
func NewOutput(ctx context.Context, logging *Logging) *Output {
	log := func(stream Logging) func(string) {
		if !logging.shows(stream) {
			return nil
		}
		return p.GetLogger(ctx).InfoStatus
	}
	o := &Output{}
	o.Stdout = &Stream{output: o, show: log(LogStdout)}
	o.Stderr = &Stream{output: o, show: log(LogStderr)}
	return o
}

// Failure is the error of a command that did not end well: why, what ran, all that it printed.
func (o *Output) Failure(err error, command string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return fmt.Errorf("%w: running %q:\n%s", err, command, o.both.String())
}

// Flush shows last lines that have no newline.
func (o *Output) Flush() {
	for _, s := range []*Stream{o.Stdout, o.Stderr} {
		o.mu.Lock()
		rest := s.partial
		s.partial = nil
		o.mu.Unlock()
		if len(rest) > 0 {
			s.showLine(rest)
		}
	}
}

// Stream is one of the two; commands write to it.
type Stream struct {
	output  *Output
	show    func(string) // nil: not shown
	all     bytes.Buffer
	partial []byte // of a line whose end has not come yet
}

var _ io.Writer = (*Stream)(nil)

func (s *Stream) Write(b []byte) (int, error) {
	s.output.mu.Lock()
	s.all.Write(b)
	s.output.both.Write(b)
	var lines [][]byte
	if s.show != nil {
		lines = bytes.Split(append(s.partial, b...), []byte("\n"))
		s.partial = bytes.Clone(lines[len(lines)-1])
		lines = lines[:len(lines)-1]
	}
	s.output.mu.Unlock()

	for _, line := range lines {
		s.showLine(line)
	}
	return len(b), nil
}

func (s *Stream) showLine(line []byte) { s.show(string(bytes.TrimSuffix(line, []byte("\r")))) }

// String is what was printed, without one newline at its end.
func (s *Stream) String() string {
	s.output.mu.Lock()
	defer s.output.mu.Unlock()
	return strings.TrimSuffix(s.all.String(), "\n")
}
