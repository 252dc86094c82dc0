package main

import (
	"bufio"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

const soon = 100 * time.Millisecond

// echo answers lines; returns its address.
func echo(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				lines := bufio.NewReader(conn)
				for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
					conn.Write(line)
				}
				conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

func TestACutHoldsBytesBackOneWay(t *testing.T) {
	var n network
	p, err := startProxy(&n, 0, 1, echo(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	conn, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lines := bufio.NewReader(conn)
	exchange := func(wait time.Duration) bool {
		conn.Write([]byte("x\n"))
		conn.SetReadDeadline(time.Now().Add(wait))
		_, err := lines.ReadString('\n')
		return err == nil
	}
	if !exchange(time.Second) {
		t.Fatal("nothing comes through")
	}
	for _, link := range [][2]int{{0, 1}, {1, 0}} {
		n.cut(link[0], link[1])
		if exchange(soon) {
			t.Errorf("an answer in spite of the cut %v", link)
		}
		n.cut(link[0], link[1])
		n.mend(link[0], link[1])
		if exchange(soon) {
			t.Errorf("the end of one cut %v ends another", link)
		}
		n.heal()
		conn.SetReadDeadline(time.Now().Add(time.Second))
		for range 2 {
			if _, err := lines.ReadString('\n'); err != nil {
				t.Errorf("what was held back by %v does not arrive: %v", link, err)
			}
		}
	}
	n.cut(0, 2)
	if !exchange(time.Second) {
		t.Error("a cut to another server holds back")
	}
	p.reset()
	if exchange(soon) {
		t.Error("a connection goes on after the reset")
	}
}

func TestAnExpiryAfterASignOfLifeIsFound(t *testing.T) {
	expire := func(heard time.Time) int {
		s := &session{name: "s", identity: 1, heard: heard}
		s.event(zk.Event{Type: zk.EventSession, State: zk.StateExpired})
		return len(s.complaints)
	}
	if expire(time.Now()) != 1 {
		t.Error("a session that was just heard may not expire")
	}
	if expire(time.Now().Add(-sessionTimeout)) != 0 {
		t.Error("a silent session may expire")
	}
}

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	for seed := range uint64(100) {
		one, two := plan(source(seed)), plan(source(seed))
		if len(one) != len(two) || len(one) == 0 {
			t.Fatal(seed, one, two)
		}
		for index := range one {
			if one[index] != two[index] {
				t.Fatal(seed, one, two)
			}
		}
	}
}
