// pulumi-language-nodejs runs Node.js programs for the Pulumi engine. It stands in for Pulumi's own language host where
// that one can't be downloaded; see README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
)

// version is set at link time.
var version = "dev"

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "pulumi-language-nodejs:", err)
		os.Exit(1)
	}
}

// serve answers the engine until it goes away or asks us to stop. Whichever it is, ctx ends and with it the program.
func serve() error {
	tracing := flag.String("tracing", "", "where to send traces")
	flag.Parse() // the engine's logging flags too: the SDK knows those

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	engine := flag.Arg(0)
	if engine != "" {
		if err := rpcutil.Healthcheck(ctx, engine, 5*time.Minute, stop); err != nil {
			return fmt.Errorf("watching the engine at %s: %w", engine, err)
		}
	}

	closing := make(chan bool)
	h := &host{ctx: ctx, stop: stop, engine: engine, tracing: *tracing}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: closing,
		Init: func(s *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(s, h)
			return nil
		},
	})
	if err != nil {
		return err
	}
	fmt.Println(handle.Port) // how the engine learns where we listen

	go func() {
		<-ctx.Done()
		h.running.Wait() // the program is given its time to end before the engine's connection is closed
		close(closing)
	}()
	return <-handle.Done
}
