package remote

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if condition() {
			return
		}
	}
	t.Fatal("it did not come about in 20 seconds")
}

func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func dialError(t *testing.T, c *Connection) error {
	t.Helper()
	client, err := c.dial(t.Context())
	if err == nil {
		client.Close()
		t.Fatal("connected")
	}
	return err
}

func connects(t *testing.T, c *Connection) {
	t.Helper()
	client, err := c.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client.Close()
}

// closedPort is one that refuses connections.
func closedPort(t *testing.T) float64 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return float64(l.Addr().(*net.TCPAddr).Port)
}

// blackHole accepts connections and never says a word.
func blackHole(t *testing.T) Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return Endpoint{
		Host: "127.0.0.1", Port: ref(float64(l.Addr().(*net.TCPAddr).Port)), DialErrorLimit: ref(0), PerDialTimeout: ref(1),
	}
}

func TestHostKey(t *testing.T) {
	s, other := startServer(t, nil), startServer(t, nil)
	c := s.connection()
	connects(t, c)
	c.HostKey = &other.hostKey
	print := func(line string) string {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		return ssh.FingerprintSHA256(key)
	}
	checkError(t, dialError(t, c), fmt.Sprintf("after 0 failed attempts: ssh: handshake failed: ssh: host key mismatch: "+
		"the host showed ssh-ed25519 %s, hostKey is ssh-ed25519 %s", print(s.hostKey), print(other.hostKey)))
	c.HostKey = nil
	connects(t, c)
	c.HostKey = ref("nonsense")
	checkError(t, dialError(t, c), "failed to parse host key: ssh: no key found")
}

func TestWrongPassword(t *testing.T) {
	c := startServer(t, nil).connection()
	c.Password = ref("wrong")
	checkError(t, dialError(t, c), "after 0 failed attempts: ssh: handshake failed: ssh: unable to authenticate, "+
		"attempted methods [none password], no supported methods remain")
}

func TestKeyboardInteractivePassword(t *testing.T) {
	s := startServer(t, func(s *testServer) {
		s.config.PasswordCallback = nil
		s.config.KeyboardInteractiveCallback = func(
			_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge,
		) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil {
				return nil, err
			}
			return nil, s.login(len(answers) == 1 && answers[0] == testPassword)
		}
	})
	connects(t, s.connection())
}

func TestPrivateKey(t *testing.T) {
	key := newKey(t)
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, func(s *testServer) {
		s.config.PasswordCallback = nil
		s.config.PublicKeyCallback = func(_ ssh.ConnMetadata, got ssh.PublicKey) (*ssh.Permissions, error) {
			return nil, s.login(string(got.Marshal()) == string(signer.PublicKey().Marshal()))
		}
	})
	c := s.connection()
	c.Password, c.PrivateKey = nil, ref(pemOf(t, key, ""))
	connects(t, c)

	c.PrivateKey, c.PrivateKeyPassword = ref(pemOf(t, key, "words")), ref("words")
	connects(t, c)
	c.PrivateKeyPassword = nil
	checkError(t, dialError(t, c), "ssh: this private key is passphrase protected")
	c.PrivateKeyPassword = ref("others")
	checkError(t, dialError(t, c), "x509: decryption password incorrect")
}

func TestProxy(t *testing.T) {
	jump, target := startServer(t, nil), startServer(t, nil)
	c := target.connection()
	c.Proxy = &ProxyConnection{jump.endpoint()}
	connects(t, c)

	c.Port = ref(closedPort(t))
	checkError(t, dialError(t, c), `proxy: after 0 failed attempts: ssh: rejected: connect failed ("Connection refused")`)

	port := closedPort(t)
	c.Proxy.Port = &port
	checkError(t, dialError(t, c), fmt.Sprintf(
		"proxy: after 0 failed attempts: dial tcp 127.0.0.1:%.0f: connect: connection refused", port))
}

// As the official plugin counts: a limit of N is N+1 attempts.
func TestDialErrorLimit(t *testing.T) {
	log := recordLog(t)
	s := startServer(t, nil)
	c := s.connection()
	c.Password, c.DialErrorLimit = ref("wrong"), ref(2)
	if err := dialError(t, c); !strings.HasPrefix(err.Error(), "after 2 failed attempts: ssh: handshake failed: ") {
		t.Errorf("error: %v", err)
	}
	s.checkLogins(t, 3)
	checkLines(t, "log", log.lines(), "INFO Dial 1/2 failed: retrying", "INFO Dial 2/2 failed: retrying")
}

func TestUnlimitedDialsEndWithTheEngine(t *testing.T) {
	log := recordLog(t)
	c := startServer(t, nil).connection()
	c.Port, c.DialErrorLimit = ref(closedPort(t)), ref(-1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.dial(ctx)
		done <- err
	}()
	eventually(t, func() bool { return len(log.lines()) >= 2 })
	cancel()
	checkError(t, <-done, "context canceled")
	check(t, "log", log.lines()[1], "INFO Dial 2/inf failed: retrying")
}

func TestPerDialTimeoutBoundsASilentHost(t *testing.T) {
	for name, c := range map[string]*Connection{
		"direct": {Endpoint: blackHole(t)},
		"proxy":  {Endpoint: blackHole(t), Proxy: &ProxyConnection{startServer(t, nil).endpoint()}},
	} {
		began := time.Now()
		want := "after 0 failed attempts: ssh: handshake failed: context deadline exceeded"
		if c.Proxy != nil {
			want = "proxy: " + want
		}
		checkError(t, dialError(t, c), want)
		if took := time.Since(began); took < time.Second || took > 5*time.Second {
			t.Errorf("%s: took %s, want a little over 1s", name, took)
		}
	}
}

func TestKeepAliveGivesUpADeadHost(t *testing.T) {
	every, limit := keepAliveEvery, keepAliveLimit
	keepAliveEvery, keepAliveLimit = 10*time.Millisecond, 200*time.Millisecond
	t.Cleanup(func() { keepAliveEvery, keepAliveLimit = every, limit })

	log := recordLog(t)
	s := startServer(t, nil)
	// The flow stops, with no end of either connection: a proxy that no longer passes anything on.
	through, stop := passOn(t, net.JoinHostPort(s.host, fmt.Sprintf("%.0f", s.port)))
	in := inputs(s, "echo started; sleep 300")
	in.Connection.Port = &through
	done := make(chan error, 1)
	go func() {
		_, err := create(t, in)
		done <- err
	}()
	eventually(t, func() bool { return len(log.lines()) > 0 })
	stop()
	checkError(t, <-done,
		"connection lost: no answer from the host for 200ms: running \"echo started; sleep 300\":\nstarted\n")
}

// passOn forwards one connection until it is told to stop, and then holds it open.
func passOn(t *testing.T, to string) (port float64, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	pipe := func(from, to net.Conn) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := from.Read(buffer)
			select {
			case <-stopped:
				return
			default:
			}
			if err != nil {
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		t.Cleanup(func() { near.Close(); far.Close() })
		go pipe(near, far)
		go pipe(far, near)
	}()
	t.Cleanup(func() { l.Close() })
	return float64(l.Addr().(*net.TCPAddr).Port), func() { close(stopped) }
}

func TestUnreachableAgent(t *testing.T) {
	c := startServer(t, nil).connection()
	c.AgentSocketPath = ref("/nonexistent/agent")
	err := dialError(t, c)
	checkError(t, err, "dial unix /nonexistent/agent: connect: "+syscall.ENOENT.Error())
}
