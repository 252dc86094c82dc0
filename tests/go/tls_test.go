package tests

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// authority signs certificates, for servers and clients.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
	pool        *x509.CertPool
	next        int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a.certificate, a.key = template, newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	ok(t, err)
	a.certificate, err = x509.ParseCertificate(der)
	ok(t, err)
	a.pool.AddCert(a.certificate)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	return key
}

func (a *authority) template(name string) *x509.Certificate {
	a.next++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.next),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

// sign makes a certificate whose subject is CN=name, for either end.
func (a *authority) sign(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, template := newKey(t), a.template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	ok(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// settings writes the files of a server, and says in a zoo.cfg where they are.
func (a *authority) settings(t *testing.T) string {
	t.Helper()
	dir, server := t.TempDir(), a.sign(t, "server")
	key, err := x509.MarshalPKCS8PrivateKey(server.PrivateKey)
	ok(t, err)
	block := func(kind string, bytes []byte) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes})
	}
	store, trust := filepath.Join(dir, "server.pem"), filepath.Join(dir, "authority.pem")
	text := append(block("PRIVATE KEY", key), block("CERTIFICATE", server.Certificate[0])...)
	ok(t, os.WriteFile(store, text, 0o600))
	ok(t, os.WriteFile(trust, block("CERTIFICATE", a.certificate.Raw), 0o600))
	return "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n" +
		"authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider\n" +
		"ssl.keyStore.type=PEM\nssl.trustStore.type=PEM\n" +
		fmt.Sprintf("ssl.keyStore.location=%s\nssl.trustStore.location=%s\n", store, trust)
}

// config is what a client shows and whom it trusts. It comes back by tickets, as Go's programs do that keep theirs.
func (a *authority) config(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{
		RootCAs:            a.pool,
		Certificates:       certificates,
		ServerName:         "localhost",
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
}

// connectTLS waits for a session at an address.
func connectTLS(t *testing.T, address string, config *tls.Config) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	conn, events, err := dialTLS(address, config)
	ok(t, err)
	t.Cleanup(conn.Close)
	await(t, events, zk.StateHasSession)
	return conn, events
}

// dialTLS gives the client a dialer with TLS: it has no setting for that.
func dialTLS(address string, config *tls.Config) (*zk.Conn, <-chan zk.Event, error) {
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: timeout}, network, address, config)
	}
	return zk.Connect([]string{address}, sessionTimeout, zk.WithDialer(dial), zk.WithLogger(quiet{}))
}

func TestTLSBesideClientsInTheClear(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := serverWith(t, a.settings(t)+"client.portUnification=true\n")
	conn, events := connectTLS(t, s.address(), a.config(a.sign(t, "app")))
	plain, _ := connect(t, s)
	useIdentity(t, conn, plain)

	// The session outlives the server, and comes back with what it has shown.
	_, err := conn.Create("/ephemeral", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	ok(t, err)
	s.end(syscall.SIGKILL)
	await(t, events, zk.StateDisconnected)
	ok(t, s.start())
	await(t, events, zk.StateHasSession)
	_, err = conn.Set("/own", []byte("again"), -1)
	ok(t, err)
	there, _, err := conn.Exists("/ephemeral")
	ok(t, err)
	equal(t, "the ephemeral is there", true, there)
}

// freePort is one that nobody listens on, below those that the system gives to connections: one of another test would
// take it before the server listens.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 12_000 + mathrand.IntN(18_000)
		if probe, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			probe.Close()
			return port
		}
	}
	t.Fatal("there is no free port")
	return 0
}

func TestTLSOnAPortOfItsOwn(t *testing.T) {
	if strings.Contains(os.Getenv("SERVER_COMMAND"), "launch.py") {
		t.Skip("three servers on one machine would have one port")
	}
	t.Parallel()
	a := newAuthority(t)
	port := freePort(t)
	// Without a clientPort the secure one would be the only one; which it is, the command line says.
	s := serverWith(t, a.settings(t)+fmt.Sprintf("clientPort=2181\nsecureClientPort=%d\n", port))
	address := fmt.Sprintf("localhost:%d", port)
	conn, _ := connectTLS(t, address, a.config(a.sign(t, "app")))
	stranger, _ := connectTLS(t, address, a.config(a.sign(t, "stranger")))
	useIdentity(t, conn, stranger)
	plain, _ := connect(t, s)
	_, _, err := plain.Get("/own")
	equal(t, "who is in the clear", zk.ErrNoAuth, err)

	turnedAway(t, address, a.config())
	turnedAway(t, address, a.config(newAuthority(t).sign(t, "app")))
	notTrusted(t, address, newAuthority(t).config(a.sign(t, "app")))
}

// useIdentity does what only the owner of the certificate may do.
func useIdentity(t *testing.T, conn, stranger *zk.Conn) {
	t.Helper()
	own := []zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=app"}}
	_, err := conn.Create("/own", []byte("mine"), zk.FlagPersistent, own)
	ok(t, err)
	_, err = conn.Create("/auth", nil, zk.FlagPersistent, []zk.ACL{{Perms: zk.PermAll, Scheme: "auth"}})
	ok(t, err)
	acl, _, err := conn.GetACL("/auth")
	ok(t, err)
	equal(t, "the ACL", fmt.Sprint(own), fmt.Sprint(acl))
	for _, path := range []string{"/own", "/auth"} {
		_, _, err = stranger.Get(path)
		equal(t, "what a stranger reads", zk.ErrNoAuth, err)
		_, err = stranger.Set(path, nil, -1)
		equal(t, "what a stranger writes", zk.ErrNoAuth, err)
	}
	_, _, watch, err := conn.GetW("/own")
	ok(t, err)
	large := make([]byte, 500_000)
	_, err = conn.Multi(
		&zk.SetDataRequest{Path: "/own", Data: large, Version: -1},
		&zk.CreateRequest{Path: "/own/child", Acl: own},
	)
	ok(t, err)
	equal(t, "the watch", zk.EventNodeDataChanged, next(t, watch).Type)
	data, _, err := conn.Get("/own")
	ok(t, err)
	equal(t, "bytes", len(large), len(data))
}

// turnedAway shows that the server says why, by an alert, and gives no session.
func turnedAway(t *testing.T, address string, config *tls.Config) {
	t.Helper()
	conn, events, err := dialTLS(address, config)
	ok(t, err)
	defer conn.Close()
	for deadline := time.After(time.Second); ; {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				t.Fatal("it has a session")
			}
			continue
		case <-deadline:
		}
		break
	}
	connection, err := tls.Dial("tcp", address, config)
	if err == nil {
		// With TLS 1.3 the client has done its part before the server has looked at it.
		defer connection.Close()
		connection.SetDeadline(time.Now().Add(patience))
		_, err = connection.Read(make([]byte, 1))
	}
	var alert *net.OpError
	if !errors.As(err, &alert) || alert.Op != "remote error" {
		t.Fatalf("no alert, but %v", err)
	}
}

// notTrusted shows that the client looks at the server's certificate.
func notTrusted(t *testing.T, address string, config *tls.Config) {
	t.Helper()
	_, err := tls.Dial("tcp", address, config)
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		t.Fatalf("not refused as of an unknown authority, but %v", err)
	}
}

// TestTLSHasTheLastReplyInARecordOfItsOwn is for clients that look for the next one at their socket alone, as that in C
// does: while there is another record they find it.
func TestTLSHasTheLastReplyInARecordOfItsOwn(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	s := serverWith(t, a.settings(t)+"client.portUnification=true\n")
	connection, err := tls.Dial("tcp", s.address(), a.config(a.sign(t, "app")))
	ok(t, err)
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(patience))
	// The handshake: no version, nothing seen, 10 s, no session, an empty password.
	handshake := make([]byte, 4+44)
	binary.BigEndian.PutUint32(handshake, 44)
	binary.BigEndian.PutUint32(handshake[4+12:], 10_000)
	binary.BigEndian.PutUint32(handshake[4+24:], 16)
	_, err = connection.Write(handshake)
	ok(t, err)
	buffer := make([]byte, 1<<16)
	_, err = connection.Read(buffer)
	ok(t, err)

	const pings = 50
	ping := []byte{0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11}
	_, err = connection.Write(bytes.Repeat(ping, pings))
	ok(t, err)
	const reply = 20
	last := 0
	for left := pings * reply; left > 0; left -= last {
		// Read gives what is in one record.
		last, err = connection.Read(buffer)
		ok(t, err)
	}
	equal(t, "bytes in the last record", reply, last)
}
