// Package remote has the resources that work over SSH.
package remote

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

const (
	defaultUser           = "root"
	defaultPort           = 22
	defaultDialErrorLimit = 10
	defaultPerDialTimeout = 15 // seconds
)

// Connection says how to reach a host, over a jump host if there is one.
type Connection struct {
	Endpoint
	Proxy *ProxyConnection `pulumi:"proxy,optional"`
}

func (c *Connection) Annotate(a infer.Annotator) {
	a.Describe(&c.Proxy, "The jump host, if the host is not reached directly.")
	c.annotate(a)
}

// ProxyConnection says how to reach the jump host.
type ProxyConnection struct{ Endpoint }

func (c *ProxyConnection) Annotate(a infer.Annotator) { c.annotate(a) }

// Endpoint is one SSH server and how to log in there.
type Endpoint struct {
	Host               string   `pulumi:"host"`
	Port               *float64 `pulumi:"port,optional"`
	User               *string  `pulumi:"user,optional"`
	Password           *string  `pulumi:"password,optional"`
	PrivateKey         *string  `pulumi:"privateKey,optional"`
	PrivateKeyPassword *string  `pulumi:"privateKeyPassword,optional"`
	AgentSocketPath    *string  `pulumi:"agentSocketPath,optional"`
	HostKey            *string  `pulumi:"hostKey,optional"`
	DialErrorLimit     *int     `pulumi:"dialErrorLimit,optional"`
	PerDialTimeout     *int     `pulumi:"perDialTimeout,optional"`
}

func (e *Endpoint) annotate(a infer.Annotator) {
	a.SetDefault(&e.User, defaultUser)
	a.SetDefault(&e.Port, defaultPort)
	a.SetDefault(&e.DialErrorLimit, defaultDialErrorLimit)
	a.SetDefault(&e.PerDialTimeout, defaultPerDialTimeout)
}

func or[T any](value *T, otherwise T) T {
	if value == nil {
		return otherwise
	}
	return *value
}

func (e *Endpoint) address() string {
	return net.JoinHostPort(e.Host, strconv.Itoa(int(or(e.Port, defaultPort))))
}

func (e *Endpoint) dialErrorLimit() int { return or(e.DialErrorLimit, defaultDialErrorLimit) }

// attemptTimeout bounds one attempt to connect; zero is no bound.
func (e *Endpoint) attemptTimeout() time.Duration {
	return time.Duration(or(e.PerDialTimeout, defaultPerDialTimeout)) * time.Second
}

// clientConfig also returns how to give back what the config holds open.
func (e *Endpoint) clientConfig() (config *ssh.ClientConfig, release func(), err error) {
	release = func() {}
	hostKey, err := e.hostKeyCallback()
	if err != nil {
		return nil, nil, err
	}
	config = &ssh.ClientConfig{User: or(e.User, defaultUser), HostKeyCallback: hostKey}

	if e.PrivateKey != nil {
		signer, err := parsePrivateKey(*e.PrivateKey, e.PrivateKeyPassword)
		if err != nil {
			return nil, nil, err
		}
		config.Auth = append(config.Auth, ssh.PublicKeys(signer))
	}
	if e.Password != nil {
		config.Auth = append(config.Auth, ssh.Password(*e.Password), ssh.KeyboardInteractive(
			func(_, _ string, questions []string, _ []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range answers {
					answers[i] = *e.Password
				}
				return answers, nil
			}))
	}
	if socket := or(e.AgentSocketPath, os.Getenv("SSH_AUTH_SOCK")); socket != "" {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return nil, nil, err
		}
		release = func() { conn.Close() }
		config.Auth = append(config.Auth, ssh.PublicKeysCallback(agent.NewClient(conn).Signers))
	}
	return config, release, nil
}

func parsePrivateKey(key string, passphrase *string) (ssh.Signer, error) {
	if passphrase != nil {
		return ssh.ParsePrivateKeyWithPassphrase([]byte(key), []byte(*passphrase))
	}
	return ssh.ParsePrivateKey([]byte(key))
}

// hostKeyCallback accepts the one given key, or any when none is given. The kind of key that is negotiated is left as it
// is, so that a key that is refused here is refused by the official plugin too.
func (e *Endpoint) hostKeyCallback() (ssh.HostKeyCallback, error) {
	if e.HostKey == nil {
		return ssh.InsecureIgnoreHostKey(), nil
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey([]byte(*e.HostKey))
	if err != nil {
		return nil, fmt.Errorf("failed to parse host key: %w", err)
	}
	return func(_ string, _ net.Addr, got ssh.PublicKey) error {
		if !bytes.Equal(got.Marshal(), want.Marshal()) {
			return fmt.Errorf("ssh: host key mismatch: the host showed %s %s, hostKey is %s %s",
				got.Type(), ssh.FingerprintSHA256(got), want.Type(), ssh.FingerprintSHA256(want))
		}
		return nil
	}, nil
}
