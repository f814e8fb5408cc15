package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// accepted is the line about a message that was accepted.
type accepted struct {
	Event string   `json:"event"`
	From  string   `json:"from"`
	To    []string `json:"to"`
	TLS   bool     `json:"tls"`
	User  string   `json:"user"`
	Data  string   `json:"data"`
}

// refused is the line about a command that was refused.
type refused struct {
	Event   string `json:"event"`
	Command string `json:"command"`
	To      string `json:"to"`
	Code    int    `json:"code"`
	Text    string `json:"text"`
}

// backend is what all connections share.
type backend struct {
	options *options
	// Cancelled when the server stops.
	ctx context.Context

	mu    sync.Mutex
	lines *json.Encoder
	// How often a pair of recipient and sender has been refused.
	greylist map[[2]string]int
}

// NewSession implements smtp.Backend. It is called again after STARTTLS.
func (b *backend) NewSession(c *smtp.Conn) (smtp.Session, error) {
	_, isTLS := c.TLSConnectionState()
	return &session{backend: b, tls: isTLS}, nil
}

// write writes one line.
func (b *backend) write(line any) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.Encode(line)
}

// greylisted counts an attempt, and says whether it is one of those to refuse.
func (b *backend) greylisted(to, from string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	pair := [2]string{to, from}
	if b.greylist[pair] >= b.options.greylistAttempts {
		return false
	}
	b.greylist[pair]++
	return true
}

// session is one connection, or what remains of it after STARTTLS.
type session struct {
	*backend
	tls  bool
	user string
	from string
	to   []string
}

// refuse writes the line, and returns the answer.
func (s *session) refuse(command, to string, code int, enhanced smtp.EnhancedCode, message string) error {
	text := fmt.Sprintf("%d.%d.%d %s", enhanced[0], enhanced[1], enhanced[2], message)
	if err := s.write(refused{Event: "refused", Command: command, To: to, Code: code, Text: text}); err != nil {
		return err
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: message}
}

// AuthMechanisms implements smtp.AuthSession. The library offers them under TLS only.
func (s *session) AuthMechanisms() []string {
	if s.options.username == "" {
		return nil
	}
	return []string{sasl.Plain, sasl.Login}
}

// Auth implements smtp.AuthSession.
func (s *session) Auth(mechanism string) (sasl.Server, error) {
	switch {
	case s.options.username == "":
		return nil, smtp.ErrAuthUnsupported
	case mechanism == sasl.Plain:
		return sasl.NewPlainServer(func(identity, username, password string) error {
			if identity != "" && identity != username {
				return s.refuse("AUTH", "", 535, smtp.EnhancedCode{5, 7, 8}, "Nobody may act as another user")
			}
			return s.authenticate(username, password)
		}), nil
	case mechanism == sasl.Login:
		return &loginServer{authenticate: s.authenticate}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

func (s *session) authenticate(username, password string) error {
	if username != s.options.username || password != s.options.password {
		return s.refuse("AUTH", "", 535, smtp.EnhancedCode{5, 7, 8}, "Authentication credentials invalid")
	}
	s.user = username
	return nil
}

// Mail implements smtp.Session.
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.options.username != "" && s.user == "" {
		message := "Authentication required"
		if !s.tls {
			message = "Must issue a STARTTLS command first"
		}
		return s.refuse("MAIL", "", 530, smtp.EnhancedCode{5, 7, 0}, message)
	}
	s.from = from
	return nil
}

// Rcpt implements smtp.Session.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	switch localPart(to) {
	case "refused":
		return s.refuse("RCPT", to, 550, smtp.EnhancedCode{5, 1, 1}, "The mailbox does not exist")
	case "full":
		return s.refuse("RCPT", to, 452, smtp.EnhancedCode{4, 2, 2}, "The mailbox is full")
	case "greylisted":
		if s.greylisted(to, s.from) {
			return s.refuse("RCPT", to, 451, smtp.EnhancedCode{4, 7, 1}, "Greylisted, please try again later")
		}
	case "slow":
		select {
		case <-time.After(s.options.slow):
		case <-s.ctx.Done():
			return s.refuse("RCPT", to, 421, smtp.EnhancedCode{4, 3, 2}, "The server is shutting down")
		}
	}
	s.to = append(s.to, to)
	return nil
}

// Data implements smtp.Session.
func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	switch {
	case errors.Is(err, smtp.ErrDataTooLarge):
		return s.refuse("DATA", "", 552, smtp.EnhancedCode{5, 3, 4}, "The message is too large")
	case errors.Is(err, smtp.ErrTooLongLine):
		return s.refuse("DATA", "", 500, smtp.EnhancedCode{5, 6, 0}, "A line of the message is too long")
	case err != nil:
		return err // The client has given up.
	}
	for _, to := range s.to {
		if localPart(to) == "rejected" {
			return s.refuse("DATA", to, 554, smtp.EnhancedCode{5, 7, 1}, "The message is rejected")
		}
	}
	return s.write(accepted{Event: "accepted", From: s.from, To: s.to, TLS: s.tls, User: s.user, Data: string(data)})
}

// Reset implements smtp.Session.
func (s *session) Reset() { s.from, s.to = "", nil }

// Logout implements smtp.Session.
func (s *session) Logout() error { return nil }

func localPart(address string) string {
	local, _, _ := strings.Cut(address, "@")
	return strings.ToLower(local)
}

// loginServer is the server of AUTH LOGIN, which go-sasl lacks.
type loginServer struct {
	username     *string
	authenticate func(username, password string) error
}

// Next implements sasl.Server.
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.username == nil:
		username := string(response)
		l.username = &username
		return []byte("Password:"), false, nil
	}
	return nil, true, l.authenticate(*l.username, string(response))
}
