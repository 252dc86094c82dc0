package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// servers is how many there are. They are the parties of the network from 0 on.
var servers = 3

// clients are one more party.
const clients = -1

const (
	look      = 5 * time.Millisecond
	pumpBytes = 64 << 10
)

// network says who can reach whom. A cut holds bytes back instead of dropping them, as TCP would send
// them again after the cut; what was under way arrives late, as it does in real life.
type network struct {
	mu sync.Mutex
	// cuts counts them by who does not reach whom, as faults overlap.
	cuts map[[2]int]int
}

func (n *network) cut(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cuts == nil {
		n.cuts = map[[2]int]int{}
	}
	n.cuts[[2]int{from, to}]++
}

func (n *network) mend(from, to int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[[2]int{from, to}]--
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts = map[[2]int]int{}
}

func (n *network) isCut(from, to int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cuts[[2]int{from, to}] > 0
}

// wait returns when bytes get from one party to the other, or false when the proxy is closed.
func (n *network) wait(from, to int, closed <-chan struct{}) bool {
	for n.isCut(from, to) {
		select {
		case <-closed:
			return false
		case <-time.After(look):
		}
	}
	return true
}

// proxy carries the connections that one party opens to one port of another.
type proxy struct {
	network  *network
	from, to int
	target   string
	listener net.Listener
	closed   chan struct{}

	mu    sync.Mutex
	pairs map[*pair]struct{}
}

// pair is one connection through the proxy: both halves are closed together.
type pair struct {
	near, far net.Conn
	once      sync.Once
	closed    chan struct{}
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.closed)
		p.near.Close()
		if p.far != nil {
			p.far.Close()
		}
	})
}

func startProxy(n *network, from, to int, target string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{
		network: n, from: from, to: to, target: target,
		listener: listener, closed: make(chan struct{}), pairs: map[*pair]struct{}{},
	}
	go p.serve()
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// reset ends all connections through the proxy.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for each := range p.pairs {
		each.close()
	}
}

func (p *proxy) close() {
	close(p.closed)
	p.listener.Close()
	p.reset()
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(near)
	}
}

func (p *proxy) carry(near net.Conn) {
	defer near.Close()
	// A handshake needs both ways.
	if !p.network.wait(p.from, p.to, p.closed) || !p.network.wait(p.to, p.from, p.closed) {
		return
	}
	far, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	both := &pair{near: near, far: far, closed: make(chan struct{})}
	p.mu.Lock()
	p.pairs[both] = struct{}{}
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Add(2)
	go func() { defer pumps.Done(); p.pump(both, far, near, p.from, p.to) }()
	go func() { defer pumps.Done(); p.pump(both, near, far, p.to, p.from) }()
	pumps.Wait()
	p.mu.Lock()
	delete(p.pairs, both)
	p.mu.Unlock()
}

// pump moves bytes one way. The end of a connection is held back by a cut like everything else.
func (p *proxy) pump(both *pair, to io.Writer, from io.Reader, source, target int) {
	defer both.close()
	buffer := make([]byte, pumpBytes)
	for {
		length, err := from.Read(buffer)
		if !p.network.wait(source, target, both.closed) {
			return
		}
		if _, failed := to.Write(buffer[:length]); failed != nil || err != nil {
			return
		}
	}
}
