// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tlshd makes handshakes of TLS for the kernel's NFS client, as the program of that name from
// ktls-utils does: the kernel hands a connected socket over (net/handshake, the generic netlink
// family "handshake"), and gets it back with the keys of the session (kTLS). ready is made when it
// listens. With cert "none", it shows no certificate.
func tlshd(ca, cert, key, ready string) error {
	authorities, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	d := &handshaker{roots: x509.NewCertPool()}
	d.roots.AppendCertsFromPEM(authorities)
	if cert != "none" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		d.pair = &pair
	}
	if err := d.listen(); err != nil {
		return fmt.Errorf("listen for handshakes: %w", err)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return err
	}
	for {
		cmd, _, err := d.receive(d.events)
		if err != nil {
			return err
		}
		if cmd != handshakeReady {
			continue
		}
		if err := d.serve(); err != nil {
			fmt.Fprintln(os.Stderr, "tlshd:", err)
		}
	}
}

// From include/uapi/linux/handshake.h.
const (
	handshakeReady  = 1
	handshakeAccept = 2
	handshakeDone   = 3

	acceptSockFD  = 1
	acceptClass   = 2
	acceptPeer    = 8
	doneStatus    = 1
	doneSockFD    = 2
	classTLSHD    = 1
	tlsShakerName = "tlshd"
)

// From include/uapi/linux/tls.h, and include/linux/socket.h.
const (
	solTLS         = 282
	tlsTX          = 1
	tlsRX          = 2
	cipherAES128   = 51
	cipherAES256   = 52
	cipherChaCha20 = 54
)

type handshaker struct {
	roots  *x509.CertPool
	pair   *tls.Certificate
	family uint16
	events int // netlink socket that is told of new handshakes
	asks   int // one for questions
	seq    uint32
}

// listen finds the kernel's family and joins its group.
func (d *handshaker) listen() error {
	for _, fd := range []*int{&d.events, &d.asks} {
		s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
		if err != nil {
			return err
		}
		if err := unix.Bind(s, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		*fd = s
	}
	if err := d.send(unix.GENL_ID_CTRL, unix.CTRL_CMD_GETFAMILY, attr(unix.CTRL_ATTR_FAMILY_NAME, []byte("handshake\x00"))); err != nil {
		return err
	}
	_, all, err := d.receive(d.asks)
	if err != nil {
		return err
	}
	d.family = binary.NativeEndian.Uint16(all[unix.CTRL_ATTR_FAMILY_ID])
	for _, group := range nested(all[unix.CTRL_ATTR_MCAST_GROUPS]) {
		g := attrs(group)
		if strings.TrimRight(string(g[unix.CTRL_ATTR_MCAST_GRP_NAME]), "\x00") == tlsShakerName {
			id := binary.NativeEndian.Uint32(g[unix.CTRL_ATTR_MCAST_GRP_ID])
			return unix.SetsockoptInt(d.events, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(id))
		}
	}
	return errors.New("the kernel's family handshake has no group tlshd")
}

// serve takes one handshake, makes it, and tells the kernel.
func (d *handshaker) serve() error {
	if err := d.send(d.family, handshakeAccept, attr(acceptClass, number(classTLSHD))); err != nil {
		return err
	}
	_, all, err := d.receive(d.asks)
	if err != nil {
		return err
	}
	if len(all[acceptSockFD]) < 4 {
		return errors.New("the kernel hands no socket over")
	}
	fd := int(binary.NativeEndian.Uint32(all[acceptSockFD]))
	defer func() { _ = unix.Close(fd) }()
	status := uint32(0)
	err = d.shake(fd, strings.TrimRight(string(all[acceptPeer]), "\x00"))
	if err != nil {
		status = uint32(unix.EACCES)
	}
	done := append(attr(doneStatus, number(status)), attr(doneSockFD, number(uint32(fd)))...)
	return errors.Join(err, d.send(d.family, handshakeDone, done))
}

// shake begins TLS on a socket, and gives its keys to the kernel.
func (d *handshaker) shake(fd int, peer string) error {
	other, err := unix.Dup(fd)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(other), "handshake")
	raw, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return err
	}
	var keys secrets
	// It names no protocol, as ktls-utils does not.
	conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, KeyLogWriter: &keys,
		InsecureSkipVerify: true, // it is looked at below
		VerifyConnection: func(s tls.ConnectionState) error {
			if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: d.roots}); err != nil {
				return err
			}
			return s.PeerCertificates[0].VerifyHostname(peer)
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if d.pair == nil {
				return new(tls.Certificate), nil
			}
			return d.pair, nil
		}})
	if err := raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if err := conn.Handshake(); err != nil {
		_ = raw.Close()
		return err
	}
	suite := conn.ConnectionState().CipherSuite
	_ = raw.Close() // the other descriptor stays
	if err := unix.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_ULP, "tls"); err != nil {
		return fmt.Errorf("kTLS: %w", err)
	}
	for way, secret := range map[int][]byte{tlsTX: keys["CLIENT_TRAFFIC_SECRET_0"], tlsRX: keys["SERVER_TRAFFIC_SECRET_0"]} {
		info, err := cryptoInfo(suite, secret)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptString(fd, solTLS, way, string(info)); err != nil {
			return fmt.Errorf("kTLS, keys: %w", err)
		}
	}
	return nil
}

// cryptoInfo is a session's direction as include/uapi/linux/tls.h has it, from its traffic secret
// (RFC 8446 section 7.3).
func cryptoInfo(suite uint16, secret []byte) ([]byte, error) {
	var kind uint16
	var length int
	sum := sha256.New
	switch suite {
	case tls.TLS_AES_128_GCM_SHA256:
		kind, length = cipherAES128, 16
	case tls.TLS_AES_256_GCM_SHA384:
		kind, length, sum = cipherAES256, 32, sha512.New384
	case tls.TLS_CHACHA20_POLY1305_SHA256:
		kind, length = cipherChaCha20, 32
	default:
		return nil, fmt.Errorf("cipher suite %#x is not known here", suite)
	}
	key, err := expand(sum, secret, "key", length)
	if err != nil {
		return nil, err
	}
	iv, err := expand(sum, secret, "iv", 12)
	if err != nil {
		return nil, err
	}
	out := binary.NativeEndian.AppendUint16(nil, tls.VersionTLS13)
	out = binary.NativeEndian.AppendUint16(out, kind)
	if kind == cipherChaCha20 {
		out = append(append(out, iv...), key...)
	} else {
		out = append(append(append(out, iv[4:]...), key...), iv[:4]...)
	}
	return append(out, make([]byte, 8)...), nil // no record was sent with these keys
}

// expand is HKDF-Expand-Label of RFC 8446 section 7.1 with an empty context.
func expand(sum func() hash.Hash, secret []byte, label string, length int) ([]byte, error) {
	label = "tls13 " + label
	info := binary.BigEndian.AppendUint16(nil, uint16(length))
	info = append(append(append(info, byte(len(label))), label...), 0)
	return hkdf.Expand(sum, secret, string(info), length)
}

// secrets are what crypto/tls logs of a session's keys.
type secrets map[string][]byte

// Write implements io.Writer: one line is a name, the client's random number, and the secret.
func (s *secrets) Write(p []byte) (int, error) {
	words := strings.Fields(string(p))
	if len(words) != 3 {
		return len(p), nil
	}
	b, err := hex.DecodeString(words[2])
	if *s == nil {
		*s = secrets{}
	}
	(*s)[words[0]] = b
	return len(p), err
}

// What follows is netlink (RFC 3549, include/uapi/linux/genetlink.h).

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// each calls f with each attribute.
func each(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		n := int(binary.NativeEndian.Uint16(b))
		if n < 4 || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^uint16(unix.NLA_F_NESTED), b[4:n])
		b = b[min((n+3)&^3, len(b)):]
	}
}

func attrs(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	each(b, func(kind uint16, value []byte) { out[kind] = value })
	return out
}

func nested(b []byte) (out [][]byte) {
	each(b, func(_ uint16, value []byte) { out = append(out, value) })
	return out
}

func (d *handshaker) send(family uint16, cmd uint8, body []byte) error {
	d.seq++
	b := number(uint32(unix.SizeofNlMsghdr + 4 + len(body)))
	b = binary.NativeEndian.AppendUint16(b, family)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(append(b, number(d.seq)...), number(0)...)
	b = append(append(b, cmd, 1, 0, 0), body...)
	return unix.Sendto(d.asks, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// receive returns the command and the attributes of the next message.
func (d *handshaker) receive(fd int) (cmd uint8, all map[uint16][]byte, err error) {
	b := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if n < unix.SizeofNlMsghdr+4 {
			return 0, nil, errors.New("a message of netlink is cut off")
		}
		if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
			if no := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); no != 0 {
				return 0, nil, unix.Errno(no)
			}
			continue
		}
		return b[unix.SizeofNlMsghdr], attrs(b[unix.SizeofNlMsghdr+4 : n]), nil
	}
}
