package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const testUser, testPassword = "aurora", "open sesame"

// testServer is an SSH server that runs commands with /bin/sh, serves files, and forwards to other hosts.
type testServer struct {
	host      string
	port      float64
	hostKey   string // as in an authorized_keys file
	acceptEnv []string

	mu       sync.Mutex
	logins   int      // that were tried
	commands []string // that were run
	signals  []string
	config   *ssh.ServerConfig
}

func startServer(t *testing.T, change func(*testServer)) *testServer {
	t.Helper()
	private := newKey(t)
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	s := &testServer{hostKey: string(ssh.MarshalAuthorizedKey(signer.PublicKey()))}
	s.config = &ssh.ServerConfig{
		PasswordCallback: func(meta ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
			return nil, s.login(meta.User() == testUser && string(password) == testPassword)
		},
	}
	if change != nil {
		change(s)
	}
	s.config.AddHostKey(signer)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	address := listener.Addr().(*net.TCPAddr)
	s.host, s.port = address.IP.String(), float64(address.Port)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

func pemOf(t *testing.T, key ed25519.PrivateKey, passphrase string) string {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block))
}

func (s *testServer) login(ok bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logins++
	if !ok {
		return errors.New("no")
	}
	return nil
}

func (s *testServer) ran() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

func (s *testServer) gotSignals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signals)
}

func (s *testServer) checkLogins(t *testing.T, want int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logins != want {
		t.Errorf("%d logins, want %d", s.logins, want)
	}
}

func (s *testServer) serve(conn net.Conn) {
	server, channels, requests, err := ssh.NewServerConn(conn, s.config)
	if err != nil {
		conn.Close()
		return
	}
	defer server.Close()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		switch c.ChannelType() {
		case "session":
			channel, requests, err := c.Accept()
			if err != nil {
				return
			}
			go s.session(channel, requests)
		case "direct-tcpip":
			go forward(c)
		default:
			_ = c.Reject(ssh.UnknownChannelType, c.ChannelType())
		}
	}
}

func forward(c ssh.NewChannel) {
	var to struct {
		Host       string
		Port       uint32
		OriginHost string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &to); err != nil {
		_ = c.Reject(ssh.ConnectionFailed, "bad request")
		return
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		_ = c.Reject(ssh.ConnectionFailed, "Connection refused")
		return
	}
	channel, requests, err := c.Accept()
	if err != nil {
		conn.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	go func() { _, _ = io.Copy(channel, conn); channel.Close() }()
	_, _ = io.Copy(conn, channel)
	conn.Close()
}

func (s *testServer) session(channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close()
	var env []string
	var running *exec.Cmd
	for r := range requests {
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			_ = ssh.Unmarshal(r.Payload, &v)
			ok := slices.Contains(s.acceptEnv, v.Name)
			if ok {
				env = append(env, v.Name+"="+v.Value)
			}
			_ = r.Reply(ok, nil)
		case "exec":
			var v struct{ Command string }
			_ = ssh.Unmarshal(r.Payload, &v)
			s.mu.Lock()
			s.commands = append(s.commands, v.Command)
			s.mu.Unlock()
			running = exec.Command("/bin/sh", "-c", v.Command)
			running.Env = append(running.Environ(), env...)
			running.Stdout, running.Stderr = channel, channel.Stderr()
			running.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			// As sshd does: what the client still sends does not hold up the end of a command.
			stdin, _ := running.StdinPipe()
			_ = r.Reply(running.Start() == nil, nil)
			go func() { _, _ = io.Copy(stdin, channel); stdin.Close() }()
			go func() {
				_ = running.Wait()
				status := struct{ Status uint32 }{uint32(running.ProcessState.ExitCode())}
				_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(status))
				channel.Close()
			}()
		case "signal":
			var v struct{ Signal string }
			_ = ssh.Unmarshal(r.Payload, &v)
			s.mu.Lock()
			s.signals = append(s.signals, v.Signal)
			s.mu.Unlock()
			_ = syscall.Kill(-running.Process.Pid, syscall.SIGTERM)
		case "subsystem":
			_ = r.Reply(true, nil)
			server, err := sftp.NewServer(channel)
			if err != nil {
				return
			}
			go func() { _ = server.Serve(); channel.Close() }()
		default:
			_ = r.Reply(false, nil)
		}
	}
}

// connection is one that succeeds, or fails at its first error.
func (s *testServer) connection() *Connection { return &Connection{Endpoint: s.endpoint()} }

func (s *testServer) endpoint() Endpoint {
	return Endpoint{
		Host: s.host, Port: &s.port, User: ref(testUser), Password: ref(testPassword), DialErrorLimit: ref(0),
		PerDialTimeout: ref(10), HostKey: &s.hostKey,
	}
}

func ref[T any](v T) *T { return &v }

// messages records what goes to the engine's log: without an engine it goes to slog.
type messages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func recordLog(t *testing.T) *messages {
	t.Helper()
	m := &messages{}
	before := slog.Default()
	slog.SetDefault(slog.New(m))
	t.Cleanup(func() { slog.SetDefault(before) })
	return m
}

func (m *messages) Enabled(context.Context, slog.Level) bool { return true }
func (m *messages) WithAttrs([]slog.Attr) slog.Handler       { return m }
func (m *messages) WithGroup(string) slog.Handler            { return m }
func (m *messages) Handle(_ context.Context, r slog.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(&m.text, "%s %s\n", r.Level, r.Message)
	return nil
}

func (m *messages) lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.text.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(m.text.String(), "\n"), "\n")
}
