package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const quorumPatience = 60 * time.Second

// server is a process that keeps its ports and its folder over restarts.
type server struct {
	number  int
	port    int
	config  string
	output  string
	process *exec.Cmd
	paused  bool
}

// ensemble is servers that reach each other through proxies only, and are reached through
// proxies by the clients.
type ensemble struct {
	dir     string
	network network
	servers []*server
	// toServer are the clients' proxies.
	toServer []*proxy
	proxies  []*proxy
}

func startEnsemble(dir, settings string) (*ensemble, error) {
	e := &ensemble{dir: dir, servers: make([]*server, servers), toServer: make([]*proxy, servers)}
	if err := e.configure(settings); err != nil {
		e.close()
		return nil, err
	}
	for _, each := range e.servers {
		if err := each.start(); err != nil {
			e.close()
			return nil, err
		}
	}
	if err := e.waitInQuorum(); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

// configure gives each server a configuration in which the others have the ports of the proxies that
// carry its connections to them.
func (e *ensemble) configure(settings string) error {
	const each = 3
	ports, err := freePorts(each * servers)
	if err != nil {
		return err
	}
	for number := range e.servers {
		client, peer, election := ports[each*number], ports[each*number+1], ports[each*number+2]
		data := filepath.Join(e.dir, fmt.Sprint("server", number+1))
		if err := os.MkdirAll(data, 0o755); err != nil {
			return err
		}
		e.servers[number] = &server{number: number, port: client, config: data + ".cfg", output: data + ".out"}
		lines := fmt.Sprintf("%sdataDir=%s\n", settings, data)
		for other := range e.servers {
			otherPeer, otherElection := peer, election
			if other != number {
				otherPeer, otherElection = ports[each*other+1], ports[each*other+2]
				for _, port := range []*int{&otherPeer, &otherElection} {
					p, err := startProxy(&e.network, number, other, fmt.Sprint("127.0.0.1:", *port))
					if err != nil {
						return err
					}
					e.proxies = append(e.proxies, p)
					*port = p.port()
				}
			}
			lines += fmt.Sprintf("server.%d=127.0.0.1:%d:%d:participant;%d\n",
				other+1, otherPeer, otherElection, ports[each*other])
		}
		if err := os.WriteFile(filepath.Join(data, "myid"), fmt.Appendln(nil, number+1), 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(e.servers[number].config, []byte(lines), 0o644); err != nil {
			return err
		}
		p, err := startProxy(&e.network, clients, number, e.servers[number].address())
		if err != nil {
			return err
		}
		e.toServer[number] = p
		e.proxies = append(e.proxies, p)
	}
	return nil
}

// freePorts are different ports that nobody listens on. They lie below those that the system gives to
// connections and proxies, so that none is taken while its server is down.
func freePorts(count int) ([]int, error) {
	const lowest, highest = 12000, 30000
	var ports []int
	for _, offset := range rand.Perm(highest - lowest) {
		if len(ports) == count {
			return ports, nil
		}
		if listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", lowest+offset)); err == nil {
			listener.Close()
			ports = append(ports, lowest+offset)
		}
	}
	return nil, fmt.Errorf("there are no %d free ports from %d to %d", count, lowest, highest)
}

func (e *ensemble) close() {
	for _, each := range e.servers {
		if each != nil {
			each.kill()
		}
	}
	for _, each := range e.proxies {
		each.close()
	}
}

// addresses are those for clients, that of one server first.
func (e *ensemble) addresses(first int) []string {
	var addresses []string
	for offset := range servers {
		addresses = append(addresses, e.toServer[(first+offset)%servers].address())
	}
	return addresses
}

// leader is the number of the server that leads, or -1.
func (e *ensemble) leader() int {
	for number, each := range e.servers {
		if each.mode() == "leader" {
			return number
		}
	}
	return -1
}

// heal undoes all faults and waits until all servers serve.
func (e *ensemble) heal() error {
	e.network.heal()
	for _, each := range e.servers {
		each.resume()
		if err := each.start(); err != nil {
			return err
		}
	}
	return e.waitInQuorum()
}

func (e *ensemble) waitInQuorum() error {
	for deadline := time.Now().Add(quorumPatience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		leaders, followers := 0, 0
		for _, each := range e.servers {
			switch each.mode() {
			case "leader":
				leaders++
			case "follower":
				followers++
			}
		}
		if leaders == 1 && followers == servers-1 {
			return nil
		}
	}
	var told error
	for _, each := range e.servers {
		told = errors.Join(told, fmt.Errorf("server %d is %q: %s", each.number+1, each.mode(), each.tail()))
	}
	return fmt.Errorf("no quorum of all servers in %v: %w", quorumPatience, told)
}

// start starts the server unless it runs.
func (s *server) start() error {
	if s.process != nil {
		return nil
	}
	words := strings.Fields(os.Getenv("MEMBER_COMMAND"))
	if len(words) == 0 {
		return errors.New("MEMBER_COMMAND is not set; run `cargo xtask linearizable`")
	}
	output, err := os.OpenFile(s.output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer output.Close()
	process := exec.Command(words[0], append(words[1:], s.config)...)
	process.Stdout, process.Stderr = output, output
	if err := process.Start(); err != nil {
		return err
	}
	s.process = process
	return nil
}

func (s *server) kill() {
	if s.process == nil {
		return
	}
	s.process.Process.Kill()
	s.process.Wait()
	s.process = nil
	s.paused = false
}

func (s *server) pause() {
	if s.process != nil {
		s.process.Process.Signal(syscall.SIGSTOP)
		s.paused = true
	}
}

func (s *server) resume() {
	if s.paused {
		s.process.Process.Signal(syscall.SIGCONT)
		s.paused = false
	}
}

func (s *server) address() string { return fmt.Sprint("127.0.0.1:", s.port) }

// mode is what the server says of itself: leader, follower, or nothing while it does not serve.
func (s *server) mode() string {
	if s.process == nil || s.paused {
		return ""
	}
	conn, err := net.DialTimeout("tcp", s.address(), time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("srvr")); err != nil {
		return ""
	}
	answer, _ := io.ReadAll(conn)
	for line := range strings.Lines(string(answer)) {
		if mode, found := strings.CutPrefix(line, "Mode: "); found {
			return strings.TrimSpace(mode)
		}
	}
	return ""
}

// tail is the end of what the server printed.
func (s *server) tail() string {
	const bytes = 1000
	told, _ := os.ReadFile(s.output)
	return string(told[max(0, len(told)-bytes):])
}
