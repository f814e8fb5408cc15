package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// server is a running server.
type server struct {
	t       *testing.T
	address string
	roots   *x509.CertPool
	lines   <-chan string
	stop    func()
	ended   <-chan error
}

// start starts a server with these flags, and a certificate if withTLS.
func start(t *testing.T, withTLS bool, flags ...string) *server {
	t.Helper()
	s := &server{t: t}
	if withTLS {
		flags = append(flags, s.certificate()...)
	}
	o, err := parse(flags, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	lines, ended := make(chan string, 100), make(chan error, 1)
	go func() {
		for scanner := bufio.NewScanner(reader); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	go func() {
		ended <- run(ctx, o, writer)
		writer.Close()
	}()
	s.lines, s.ended, s.stop = lines, ended, cancel
	t.Cleanup(cancel)
	select {
	case line := <-lines:
		s.address = strings.TrimPrefix(line, "listening on ")
	case err := <-ended:
		t.Fatal(err)
	}
	return s
}

// certificate makes one for 127.0.0.1, and returns the flags that name it.
func (s *server) certificate() []string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	s.check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	s.check(err)
	dir := s.t.TempDir()
	certFile, keyFile := filepath.Join(dir, "server.pem"), filepath.Join(dir, "server-key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.check(os.WriteFile(certFile, certPEM, 0o600))
	s.check(os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	s.roots = x509.NewCertPool()
	s.roots.AppendCertsFromPEM(certPEM)
	return []string{"--tls-cert", certFile, "--tls-key", keyFile}
}

func (s *server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// dial connects, under TLS if there is a certificate.
func (s *server) dial() *smtp.Client {
	s.t.Helper()
	var client *smtp.Client
	var err error
	if s.roots == nil {
		client, err = smtp.Dial(s.address)
	} else {
		client, err = smtp.DialStartTLS(s.address, &tls.Config{RootCAs: s.roots})
	}
	s.check(err)
	s.t.Cleanup(func() { client.Close() })
	return client
}

// line reads the next line of JSON.
func (s *server) line() (line struct {
	accepted
	Command, Text string
	Code          int
}) {
	s.t.Helper()
	select {
	case text := <-s.lines:
		// "to" is a list or a string.
		var to struct{ To any }
		s.check(json.Unmarshal([]byte(text), &to))
		if one, ok := to.To.(string); ok {
			text = strings.Replace(text, `"to":"`+one+`"`, `"to":["`+one+`"]`, 1)
		}
		s.check(json.Unmarshal([]byte(text), &line))
	case <-time.After(10 * time.Second):
		s.t.Fatal("there is no line")
	}
	return line
}

// code is what a command was answered with; 0 for success.
func code(err error) int {
	var answer *smtp.SMTPError
	if errors.As(err, &answer) {
		return answer.Code
	}
	if err != nil {
		return -1
	}
	return 0
}

func send(client *smtp.Client, to ...string) error {
	return client.SendMail("from@example.com", to, strings.NewReader("Subject: <&>\r\n\r\n.dot\r\n"))
}

func TestRecipientsDecide(t *testing.T) {
	s := start(t, false)
	for _, one := range []struct {
		to      string
		code    int
		command string
		text    string
	}{
		{"refused@example.com", 550, "RCPT", "5.1.1 "},
		{"Refused@Example.com", 550, "RCPT", "5.1.1 "},
		{"full@example.com", 452, "RCPT", "4.2.2 "},
		{"full@example.com", 452, "RCPT", "4.2.2 "},
		{"greylisted@example.com", 451, "RCPT", "4.7.1 "},
		{"greylisted@example.com", 0, "", ""},
		{"greylisted@example.org", 451, "RCPT", "4.7.1 "},
		{"rejected@example.com", 554, "DATA", "5.7.1 "},
		{"refused+tag@example.com", 0, "", ""},
		{"anyone@example.com", 0, "", ""},
	} {
		if got := code(send(s.dial(), one.to)); got != one.code {
			t.Errorf("%s: answered %d", one.to, got)
		}
		line := s.line()
		if line.Code != one.code || line.Command != one.command || !strings.HasPrefix(line.Text, one.text) ||
			len(line.To) != 1 || line.To[0] != one.to {
			t.Errorf("%s: logged %+v", one.to, line)
		}
	}
}

func TestMessagesAreLoggedAsTheyCame(t *testing.T) {
	s := start(t, false)
	s.check(send(s.dial(), "a@example.com", "b@example.com"))
	line := s.line()
	if line.Event != "accepted" || line.From != "from@example.com" || len(line.To) != 2 || line.TLS || line.User != "" ||
		line.Data != "Subject: <&>\r\n\r\n.dot\r\n" {
		t.Errorf("%+v", line)
	}
}

func TestGreylistingCountsAttemptsOfEachSender(t *testing.T) {
	s := start(t, false, "--greylist-attempts", "2")
	client := s.dial()
	for _, one := range []struct {
		from string
		code int
	}{{"a@example.com", 451}, {"b@example.com", 451}, {"a@example.com", 451}, {"a@example.com", 0}} {
		s.check(client.Mail(one.from, nil))
		if got := code(client.Rcpt("greylisted@example.com", nil)); got != one.code {
			t.Errorf("%s: answered %d", one.from, got)
		}
		s.check(client.Reset())
	}
}

func TestAuthenticationIsRequiredUnderTLS(t *testing.T) {
	s := start(t, true, "--username", "alice", "--password", "secret")
	plain, err := smtp.Dial(s.address)
	s.check(err)
	defer plain.Close()
	if err := plain.Hello("localhost"); err != nil || plain.SupportsAuth(sasl.Plain) {
		t.Errorf("AUTH without TLS: %v", err)
	}
	if got := code(plain.Mail("from@example.com", nil)); got != 530 {
		t.Errorf("MAIL without TLS: answered %d", got)
	}
	s.line()
	if got := code(send(s.dial(), "a@example.com")); got != 530 {
		t.Errorf("MAIL without authentication: answered %d", got)
	}
	s.line()
	if got := code(s.dial().Auth(sasl.NewPlainClient("", "alice", "wrong"))); got != 535 {
		t.Errorf("a wrong password: answered %d", got)
	}
	if line := s.line(); line.Command != "AUTH" || line.Code != 535 {
		t.Errorf("a wrong password: logged %+v", line)
	}
	for _, mechanism := range []sasl.Client{
		sasl.NewPlainClient("", "alice", "secret"), sasl.NewLoginClient("alice", "secret"),
	} {
		client := s.dial()
		s.check(client.Auth(mechanism))
		s.check(send(client, "a@example.com"))
		if line := s.line(); !line.TLS || line.User != "alice" {
			t.Errorf("logged %+v", line)
		}
	}
}

func TestImplicitTLS(t *testing.T) {
	s := start(t, true, "--implicit-tls")
	client, err := smtp.DialTLS(s.address, &tls.Config{RootCAs: s.roots})
	s.check(err)
	defer client.Close()
	s.check(send(client, "a@example.com"))
	if starttls, _ := client.Extension("STARTTLS"); starttls || !s.line().TLS {
		t.Error("TLS is not there from the beginning")
	}
}

func TestWithoutACertificateThereIsNoSTARTTLS(t *testing.T) {
	client := start(t, false).dial()
	if starttls, _ := client.Extension("STARTTLS"); starttls {
		t.Error("it is offered")
	}
}

func TestSlowRecipientsAreAnsweredInTheEnd(t *testing.T) {
	s := start(t, false, "--slow", "50ms")
	begin := time.Now()
	s.check(send(s.dial(), "slow@example.com"))
	if took := time.Since(begin); took < 50*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
}

func TestStoppingDoesNotWaitForSlowRecipients(t *testing.T) {
	s := start(t, false, "--slow", "1h")
	client := s.dial()
	s.check(client.Mail("from@example.com", nil))
	time.AfterFunc(50*time.Millisecond, s.stop)
	if got := code(client.Rcpt("slow@example.com", nil)); got != 421 {
		t.Errorf("answered %d", got)
	}
	s.check(<-s.ended)
}

func TestNonsenseIsRefused(t *testing.T) {
	s := start(t, false)
	for _, nonsense := range []string{
		"\x00\xff\r\n", "\r\n\r\n\r\n\r\n\r\n", "DATA\r\n", "MAIL FROM:<a@b>\r\n", "AUTH\r\nAUTH PLAIN !\r\n",
		"EHLO x\r\nMAIL FROM:<>>\r\nRCPT TO:<@>\r\nBDAT 5 LAST\r\nabcde", "EHLO x\r\nBDAT -1\r\nSTARTTLS\r\n",
		strings.Repeat("x", 10_000), "EHLO x\r\nAUTH PLAIN AAAA\r\nAUTH LOGIN =\r\n",
		"EHLO x\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nDATA\r\nunfinished",
	} {
		connection, err := net.Dial("tcp", s.address)
		s.check(err)
		// The server may close the connection at any byte of it, and what is written or ended after that is an error.
		_, _ = io.WriteString(connection, nonsense)
		_ = connection.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, connection)
		connection.Close()
	}
	s.check(send(s.dial(), "a@example.com"))
	if line := s.line(); line.Event != "accepted" || line.To[0] != "a@example.com" {
		t.Errorf("logged %+v", line)
	}
}

func TestMessagesHaveALimit(t *testing.T) {
	s := start(t, false)
	client := s.dial()
	s.check(client.Mail("from@example.com", nil))
	s.check(client.Rcpt("a@example.com", nil))
	data, err := client.Data()
	s.check(err)
	line := strings.Repeat("x", 900) + "\r\n"
	for range maxMessageBytes/len(line) + 1 {
		_, err = io.WriteString(data, line)
		s.check(err)
	}
	if got := code(data.Close()); got != 552 {
		t.Errorf("answered %d", got)
	}
	if line := s.line(); line.Command != "DATA" || line.Code != 552 {
		t.Errorf("logged %+v", line)
	}
	s.check(send(client, "a@example.com"))
}

func TestTheLogCanBeAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	s := start(t, false, "--log", file)
	s.check(send(s.dial(), "a@example.com"))
	text, err := os.ReadFile(file)
	s.check(err)
	if !strings.HasPrefix(string(text), `{"event":"accepted","from":"from@example.com","to":["a@example.com"],`) {
		t.Errorf("%s", text)
	}
}

func TestFlagsAreChecked(t *testing.T) {
	for _, flags := range []string{
		"argument", "--nonsense", "--tls-cert x", "--implicit-tls", "--username x", "--username x --password y", "--slow -1s",
	} {
		if _, err := parse(strings.Fields(flags), io.Discard); err == nil {
			t.Errorf("%s is accepted", flags)
		}
	}
	var help strings.Builder
	if _, err := parse([]string{"--help"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "--listen ADDRESS") {
		t.Errorf("%v: %s", err, help.String())
	}
}
