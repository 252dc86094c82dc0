package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	sessionTimeout = 4 * time.Second
	// What a server heard, the leader hears with the next ping, and sessions expire in whole ticks.
	expirySlack = 800 * time.Millisecond
	retryPause  = 100 * time.Millisecond
	openTime    = 30 * time.Second
)

// session is a client that comes back to the ensemble after every fault.
type session struct {
	name string
	conn *zk.Conn

	mu sync.Mutex
	// identity is that of the session, 0 after it was lost.
	identity int64
	// heard is when a request was sent that the leader answered: it has heard of the session since.
	heard      time.Time
	expired    int
	complaints []string
}

// openSession connects to the first of the addresses that answers, and waits until there is a session.
func openSession(name string, addresses []string) (*session, error) {
	s := &session{name: name, heard: time.Now()}
	// Events wait until the connection is known.
	s.mu.Lock()
	conn, _, err := zk.Connect(addresses, sessionTimeout,
		zk.WithHostProvider(&inOrder{addresses: addresses}),
		zk.WithDialer(dial),
		zk.WithLogger(quiet{}),
		zk.WithEventCallback(s.event))
	s.conn = conn
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(openTime); s.current() == 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			conn.Close()
			return nil, fmt.Errorf("%s: no session in %v", name, openTime)
		}
	}
	return s, nil
}

func (s *session) current() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identity
}

// answered notes that the leader has heard of the session at some time since the request was sent.
func (s *session) answered(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.heard) {
		s.heard = sent
	}
}

func (s *session) event(event zk.Event) {
	if event.Type != zk.EventSession {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.State {
	case zk.StateHasSession:
		if s.identity == 0 {
			s.heard = time.Now()
		}
		s.identity = s.conn.SessionID()
	case zk.StateExpired:
		s.expired++
		if silent := time.Since(s.heard); silent < sessionTimeout-expirySlack {
			s.complaints = append(s.complaints, fmt.Sprintf(
				"%s: session %#x has expired, %v after it was heard", s.name, s.identity, silent))
		}
		s.identity = 0
	}
}

// inOrder tries the servers in the given order, without the client's pause of a second.
type inOrder struct {
	addresses []string
	next      int
	tried     int
}

func (h *inOrder) Init([]string) error { return nil }
func (h *inOrder) Len() int            { return len(h.addresses) }
func (h *inOrder) Connected()          { h.tried = 0 }

func (h *inOrder) Next() (string, bool) {
	if h.tried >= len(h.addresses) {
		time.Sleep(retryPause)
	}
	address := h.addresses[h.next%len(h.addresses)]
	h.next++
	h.tried++
	return address, false
}

// patient bounds the client's patience in a handshake, which is ten times what it is afterwards.
type patient struct{ net.Conn }

func dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	return patient{conn}, nil
}

func (p patient) SetReadDeadline(at time.Time) error {
	if latest := time.Now().Add(sessionTimeout * 2 / 3); at.After(latest) {
		at = latest
	}
	return p.Conn.SetReadDeadline(at)
}

// quiet drops the client's own log.
type quiet struct{}

func (quiet) Printf(string, ...any) {}
