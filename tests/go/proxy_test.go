package tests

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a server, and can cut all connections.
type proxy struct {
	target   string
	listener net.Listener
	mutex    sync.Mutex
	broken   bool
	open     []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &proxy{target: target, listener: listener}
	t.Cleanup(func() {
		listener.Close()
		p.cut()
	})
	go p.accept()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut ends all connections; new ones end at once.
func (p *proxy) cut() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.broken = true
	for _, conn := range p.open {
		conn.Close()
	}
	p.open = nil
}

func (p *proxy) mend() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.broken = false
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			client.Close()
			if err == nil {
				server.Close()
			}
			continue
		}
		go relay(client, server)
		go relay(server, client)
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !p.broken {
		p.open = append(p.open, conns...)
	}
	return !p.broken
}

func relay(source, target net.Conn) {
	io.Copy(target, source)
	source.Close()
	target.Close()
}
