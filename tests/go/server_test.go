// Package tests drives a server with the Go client. The server comes from
// SERVER_COMMAND, to which the port and the data directory are added.
package tests

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	sessionTimeout = 15 * time.Second
	readyTimeout   = 30 * time.Second
	patience       = 10 * time.Second
)

// server is a child process that keeps its port and its data over a restart.
type server struct {
	port     int
	dir      string
	settings string
	process  *exec.Cmd
}

// shared serves all tests that don't stop it.
var shared *server

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "stoa-go-")
	if err != nil {
		panic(err)
	}
	code := 1
	shared, err = startServer(dir, "")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
		shared.end(syscall.SIGKILL)
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

func startServer(dir, settings string) (*server, error) {
	probe, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{port: probe.Addr().(*net.TCPAddr).Port, dir: dir, settings: settings}
	probe.Close()
	return s, s.start()
}

// ownServer is for one test alone, which may stop and kill it.
func ownServer(t *testing.T) *server {
	t.Helper()
	return serverWith(t, "")
}

// serverWith is one with more lines in its zoo.cfg.
func serverWith(t *testing.T, settings string) *server {
	t.Helper()
	s, err := startServer(t.TempDir(), settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		if told, err := os.ReadFile(filepath.Join(s.dir, "output")); err == nil && t.Failed() {
			t.Logf("the server has said: %s", told)
		}
	})
	return s
}

func (s *server) start() error {
	words := strings.Fields(os.Getenv("SERVER_COMMAND"))
	if len(words) == 0 {
		return fmt.Errorf("SERVER_COMMAND is not set; run `cargo xtask go`")
	}
	if s.settings != "" {
		if err := s.configure(words); err != nil {
			return err
		}
	}
	words = append(words, "--port", strconv.Itoa(s.port), "--data-dir", filepath.Join(s.dir, "data"))
	output, err := os.OpenFile(filepath.Join(s.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	s.process = exec.Command(words[0], words[1:]...)
	s.process.Stdout, s.process.Stderr = output, output
	if err := s.process.Start(); err != nil {
		return err
	}
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if answer, err := s.ask("srvr"); err == nil && strings.Contains(answer, "Mode:") {
			return nil
		}
	}
	s.end(syscall.SIGKILL)
	told, _ := os.ReadFile(output.Name())
	return fmt.Errorf("the server does not answer: %s", told)
}

// configure puts a copy of the zoo.cfg with its own settings in place of the given one.
func (s *server) configure(words []string) error {
	at := slices.Index(words, "--config") + 1
	if at == 0 || at == len(words) {
		return fmt.Errorf("SERVER_COMMAND has no `--config FILE`")
	}
	text, err := os.ReadFile(words[at])
	if err != nil {
		return err
	}
	words[at] = filepath.Join(s.dir, "own.cfg")
	return os.WriteFile(words[at], []byte(string(text)+s.settings), 0o600)
}

func (s *server) end(signal syscall.Signal) {
	s.process.Process.Signal(signal)
	s.process.Wait()
}

func (s *server) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// ask sends a four-letter word and returns the answer.
func (s *server) ask(word string) (string, error) {
	conn, err := net.DialTimeout("tcp", s.address(), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := conn.Write([]byte(word)); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// quiet drops the client's own log.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// connect waits for a session. Its events go on to the channel.
func connect(t *testing.T, s *server) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	conn, events, err := zk.Connect([]string{s.address()}, sessionTimeout, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	await(t, events, zk.StateHasSession)
	return conn, events
}

// await waits until the session has come to a state.
func await(t *testing.T, events <-chan zk.Event, wanted zk.State) {
	t.Helper()
	timeout := time.After(readyTimeout)
	for {
		select {
		case event, open := <-events:
			if !open {
				t.Fatalf("the session ended before it came to %v", wanted)
			}
			if event.Type == zk.EventSession && event.State == wanted {
				return
			}
		case <-timeout:
			t.Fatalf("the session never came to %v", wanted)
		}
	}
}

var number atomic.Int64

// fixture is a connection and an empty znode of its own.
func fixture(t *testing.T) (*zk.Conn, string) {
	t.Helper()
	conn, _ := connect(t, shared)
	base := fmt.Sprintf("/%s-%d", t.Name(), number.Add(1))
	create(t, conn, base)
	return conn, base
}

func create(t *testing.T, conn *zk.Conn, path string) string {
	t.Helper()
	made, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	ok(t, err)
	return made
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, wanted, got T) {
	t.Helper()
	if wanted != got {
		t.Fatalf("%s: wanted %v, got %v", what, wanted, got)
	}
}

func next(t *testing.T, events <-chan zk.Event) zk.Event {
	t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(patience):
		t.Fatal("no event")
		panic("unreachable")
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
