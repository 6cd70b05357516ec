package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/retry"
	"golang.org/x/crypto/ssh"
)

// A host that has not answered for keepAliveLimit is taken for gone: without this, a connection that died silently would
// be waited on for ever.
var (
	keepAliveEvery = 15 * time.Second
	keepAliveLimit = 60 * time.Second
)

// client is an SSH connection, and with it the TCP connection that carries it.
type client struct {
	*ssh.Client
	tcp  net.Conn // to the host, or to its jump host
	lost atomic.Bool
	stop context.CancelFunc
}

// Close closes the jump host's connection too: it has no other use.
func (c *client) Close() error {
	c.stop()
	return errors.Join(c.Client.Close(), c.tcp.Close())
}

// explain replaces the error of a connection that we gave up.
func (c *client) explain(err error) error {
	if err != nil && c.lost.Load() {
		return fmt.Errorf("connection lost: no answer from the host for %s", keepAliveLimit)
	}
	return err
}

// dial connects, again and again as the connection's limits allow.
func (c *Connection) dial(ctx context.Context) (*client, error) {
	if c.Proxy == nil {
		return dialDirect(ctx, "Dial", &c.Endpoint)
	}
	jump, err := dialDirect(ctx, "Dial proxy", &c.Proxy.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	through, err := dialThrough(ctx, jump, &c.Endpoint)
	if err != nil {
		jump.Close()
		return nil, fmt.Errorf("proxy: %w", err)
	}
	jump.stop() // the inner connection's keepalive covers both
	return through, nil
}

func dialDirect(ctx context.Context, what string, e *Endpoint) (*client, error) {
	config, release, err := e.clientConfig()
	if err != nil {
		return nil, err
	}
	defer release()
	return withRetry(ctx, what, e, func(ctx context.Context) (*client, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", e.address())
		if err != nil {
			return nil, err
		}
		return handshake(ctx, conn, conn, e, config)
	})
}

func dialThrough(ctx context.Context, jump *client, e *Endpoint) (*client, error) {
	config, release, err := e.clientConfig()
	if err != nil {
		return nil, err
	}
	defer release()
	return withRetry(ctx, "Dial from proxy", e, func(ctx context.Context) (*client, error) {
		conn, err := jump.DialContext(ctx, "tcp", e.address())
		if err != nil {
			return nil, jump.explain(err)
		}
		return handshake(ctx, conn, jump.tcp, e, config)
	})
}

// handshake logs in over conn, within ctx.
func handshake(ctx context.Context, conn, tcp net.Conn, e *Endpoint, config *ssh.ClientConfig) (*client, error) {
	unlink := context.AfterFunc(ctx, func() { conn.Close() })
	inner, channels, requests, err := ssh.NewClientConn(conn, e.address(), config)
	if !unlink() {
		conn.Close()
		return nil, fmt.Errorf("ssh: handshake failed: %w", ctx.Err())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	alive, stop := context.WithCancel(context.Background())
	c := &client{Client: ssh.NewClient(inner, channels, requests), tcp: tcp, stop: stop}
	go c.keepAlive(alive)
	return c, nil
}

// keepAlive asks the host for a sign of life from time to time and closes the connection if none comes.
func (c *client) keepAlive(ctx context.Context) {
	tick := time.NewTicker(keepAliveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		patience := time.AfterFunc(keepAliveLimit, func() {
			c.lost.Store(true)
			c.tcp.Close()
		})
		_, _, err := c.SendRequest("keepalive@openssh.com", true, nil)
		patience.Stop()
		if err != nil {
			return
		}
	}
}

// withRetry counts as the official plugin does: a limit of N allows N+1 attempts, -1 any number. Each attempt is bounded
// by perDialTimeout.
func withRetry(
	ctx context.Context, what string, e *Endpoint, attempt func(context.Context) (*client, error),
) (*client, error) {
	limit, limitText := e.dialErrorLimit(), fmt.Sprint(e.dialErrorLimit())
	if limit == -1 {
		limitText = "inf"
	}
	ok, result, err := retry.Until(ctx, retry.Acceptor{
		Accept: func(failed int, _ time.Duration) (bool, any, error) {
			bounded, cancel := bound(ctx, e.attemptTimeout())
			defer cancel()
			result, err := attempt(bounded)
			if err == nil {
				return true, result, nil
			}
			if limit > -1 && failed+1 > limit {
				return true, nil, fmt.Errorf("after %d failed attempts: %w", failed, err)
			}
			p.GetLogger(ctx).InfoStatusf("%s %d/%s failed: retrying", what, failed+1, limitText)
			return false, nil, nil
		},
	})
	if err != nil {
		return nil, err
	}
	if !ok { // cancelled while waiting for the next attempt
		return nil, ctx.Err()
	}
	return result.(*client), nil
}

func bound(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}
