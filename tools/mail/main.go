// Command mail-server receives mail for tests and demos: it delivers nothing, and writes a line of JSON about each
// message instead. What it answers depends on the local part of the recipient: see --help.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/emersion/go-smtp"
)

const (
	// Transactions that are under way when the server is stopped get this long to end.
	grace = time.Second
	// How long a client may be silent (RFC 5321, section 4.5.3.2).
	idleTimeout     = 5 * time.Minute
	maxMessageBytes = 10 << 20
	maxRecipients   = 100
)

const introduction = `A mail server for tests: delivers nothing, writes a line of JSON about each message.

Usage:
  mail-server [flags]

The first line of standard output is "listening on ADDRESS". SIGTERM and SIGINT stop the server.

What it answers depends on the local part of the recipient, in upper or lower case; "+" has no meaning in it:
  refused@     550 5.1.1 to RCPT
  greylisted@  451 4.7.1 to the first RCPT for this recipient by this sender (--greylist-attempts); then accepted
  full@        452 4.2.2 to RCPT
  slow@        accepted, but RCPT is answered only after a while (--slow)
  rejected@    accepted, but the message is answered with 554 5.7.1, for all of its recipients
Every other recipient is accepted.

The lines of JSON, written before the answer is sent:
  {"event":"accepted","from":"...","to":["..."],"tls":true,"user":"...","data":"the raw message"}
  {"event":"refused","command":"RCPT","to":"...","code":550,"text":"5.1.1 ..."}
"user" is empty without authentication. Commands that are refused: AUTH, MAIL, RCPT, DATA. Bytes of a message that
are not UTF-8 are written as U+FFFD. Commands that the protocol does not allow are refused without a line.

Example:
  mail-server --tls-cert server.pem --tls-key server-key.pem --username alice --password secret

Flags:
`

type options struct {
	listen           string
	certFile         string
	keyFile          string
	implicitTLS      bool
	username         string
	password         string
	logFile          string
	greylistAttempts int
	slow             time.Duration
}

// parse reads the command line; flag.ErrHelp means that the help is wanted, which it has written to stdout then.
func parse(args []string, stdout io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("mail-server", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`ADDRESS` to listen on; port 0 is any free port")
	f.StringVar(&o.certFile, "tls-cert", "", "`FILE` with the certificate chain in PEM; without it there is no STARTTLS")
	f.StringVar(&o.keyFile, "tls-key", "", "`FILE` with the private key in PEM")
	f.BoolVar(&o.implicitTLS, "implicit-tls", false, "Use TLS from the beginning, without STARTTLS")
	f.StringVar(&o.username, "username", "", "`NAME` that clients have to authenticate as, under TLS (AUTH PLAIN or LOGIN)")
	f.StringVar(&o.password, "password", "", "`PASSWORD` of that name: one for this run, as the list of processes shows it")
	f.StringVar(&o.logFile, "log", "", "`FILE` to append the lines of JSON to (default standard output)")
	f.IntVar(&o.greylistAttempts, "greylist-attempts", 1, "`NUMBER` of attempts that are refused for greylisted@")
	f.DurationVar(&o.slow, "slow", 30*time.Second, "`DURATION` until RCPT is answered for slow@")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, introduction)
			f.VisitAll(func(one *flag.Flag) {
				value, usage := flag.UnquoteUsage(one)
				if one.DefValue != "" && one.DefValue != "false" {
					usage += " (default " + one.DefValue + ")"
				}
				fmt.Fprintf(stdout, "  %-28s %s\n", strings.TrimSpace("--"+one.Name+" "+value), usage)
			})
		}
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q: there are only flags", f.Arg(0))
	case (o.certFile == "") != (o.keyFile == ""):
		return nil, errors.New("--tls-cert and --tls-key need each other")
	case o.implicitTLS && o.certFile == "":
		return nil, errors.New("--implicit-tls needs --tls-cert and --tls-key")
	case (o.username == "") != (o.password == ""):
		return nil, errors.New("--username and --password need each other")
	case o.username != "" && o.certFile == "":
		return nil, errors.New("--username needs --tls-cert and --tls-key: authentication is offered under TLS only")
	case o.greylistAttempts < 0 || o.slow < 0:
		return nil, errors.New("--greylist-attempts and --slow must not be negative")
	}
	return o, nil
}

// run serves until ctx is cancelled.
func run(ctx context.Context, o *options, stdout io.Writer) error {
	out := stdout
	if o.logFile != "" {
		file, err := os.OpenFile(o.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer file.Close()
		out = file
	}
	lines := json.NewEncoder(out)
	lines.SetEscapeHTML(false)

	server := smtp.NewServer(&backend{options: o, ctx: ctx, lines: lines, greylist: map[[2]string]int{}})
	server.Domain = "localhost"
	server.EnableSMTPUTF8 = true
	server.MaxMessageBytes, server.MaxRecipients = maxMessageBytes, maxRecipients
	server.ReadTimeout, server.WriteTimeout = idleTimeout, idleTimeout
	server.ErrorLog = log.New(os.Stderr, "", log.LstdFlags)
	if o.certFile != "" {
		certificate, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return fmt.Errorf("the certificate cannot be used: %w", err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "listening on %s\n", listener.Addr())
	if o.implicitTLS {
		listener = tls.NewListener(listener, server.TLSConfig)
	}

	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if err := server.Shutdown(end); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil // Connections that are still open end with the process.
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "error: %v\nSee mail-server --help.\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}
