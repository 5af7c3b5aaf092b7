// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files are the paths of PEM files, as flags and Kubernetes secrets have them.
type Files struct {
	// CA has the authority's certificate, or several; Cert and Key are the process's own.
	CA, Cert, Key string
	// Log hears of changed files, of those that cannot be used, and of a certificate that ends
	// soon; nil: nobody does.
	Log *slog.Logger
}

const (
	// lookEvery is how often files are looked at, while there are handshakes.
	lookEvery = 2 * time.Second
	// warnPart of a certificate's time is when its end is logged: cert-manager and `weir setup`
	// renew earlier.
	warnPart = 20
	// warnEvery is how often that is logged, and tellEvery how often a failure is.
	warnEvery = 24 * time.Hour
	tellEvery = time.Hour
	// retryEvery is how often files that could not be used, and have not changed since, are read
	// again: a clock may have been wrong.
	retryEvery = time.Minute
)

// watched are files that may change. There is no goroutine: who needs the certificate looks.
type watched struct {
	Files
	mu     sync.Mutex // held by who looks
	looked time.Time
	// seen is what was read last, at the time read, and refused when it could not be used;
	// toldRefusal is when that was logged last.
	seen              look
	refused           bool
	read, toldRefusal time.Time
	toldEnd           time.Time // when the end of the certificate was logged last
}

// look is what stat says of the three files; nil for one that is not there. The kubelet changes all
// files of a Secret at once by another folder under the same symbolic link: then they are other
// files.
type look [3]fs.FileInfo

// LoadFiles is Load of files, and follows them: at a handshake, at most every two seconds, it looks
// whether they changed. What is new is taken if Load would take it and if it is of the same
// identity; else the error is logged, and the old is kept. Connections stay as they are, but for
// those of Keep whose peers the authorities do not vouch for any more.
func LoadFiles(f Files, clock func() time.Time) (*Credentials, error) {
	if f.Log == nil {
		f.Log = slog.New(slog.DiscardHandler)
	}
	w := &watched{Files: f, looked: clock(), seen: f.look()}
	s, id, err := f.parse(clock())
	if err != nil {
		return nil, err
	}
	c := &Credentials{self: id, clock: clock, files: w}
	c.set.Store(s)
	w.tell(s, clock())
	return c, nil
}

func (f Files) parse(now time.Time) (*set, Identity, error) {
	var text [3][]byte
	for i, path := range f.paths() {
		var err error
		if text[i], err = os.ReadFile(path); err != nil {
			return nil, Identity{}, fmt.Errorf("load certificate: %w", err)
		}
	}
	s, id, err := parseSet(text[0], Pair{Cert: text[1], Key: text[2]}, now)
	if err != nil {
		return nil, id, fmt.Errorf("%w (files %s, %s, %s)", err, f.CA, f.Cert, f.Key)
	}
	return s, id, nil
}

func (f Files) paths() [3]string { return [3]string{f.CA, f.Cert, f.Key} }

func (f Files) look() (out look) {
	for i, path := range f.paths() {
		if info, err := os.Stat(path); err == nil {
			out[i] = info
		}
	}
	return out
}

func (l look) same(m look) bool {
	for i := range l {
		if l[i] == nil || m[i] == nil {
			if l[i] != m[i] {
				return false
			}
			continue
		}
		if !os.SameFile(l[i], m[i]) || l[i].Size() != m[i].Size() || !l[i].ModTime().Equal(m[i].ModTime()) {
			return false
		}
	}
	return true
}

// current is what is in force; files that changed are read first. A handshake does not wait for
// another that reads.
func (c *Credentials) current() *set {
	w := c.files
	if w == nil || !w.mu.TryLock() {
		return c.set.Load()
	}
	defer w.mu.Unlock()
	now := c.clock()
	if d := now.Sub(w.looked); d >= 0 && d < lookEvery { // a clock that went back is no reason to wait
		return c.set.Load()
	}
	w.looked = now
	if s := w.renewed(c.self, now); s != nil {
		c.set.Store(s)
		c.cut()      // of peers whom the authorities do not vouch for any more
		go c.again() // with the new authorities; it takes locks, and maybe a disk
		w.toldEnd = time.Time{}
	}
	s := c.set.Load()
	w.tell(s, now)
	return s
}

// renewed reads files that changed; nil: they did not, or cannot be used. They are looked at before
// they are read: a change meanwhile is found by the next look.
func (w *watched) renewed(self Identity, now time.Time) *set {
	is := w.look()
	changed := !is.same(w.seen)
	if !changed && !(w.refused && now.Sub(w.read) >= retryEvery) {
		return nil
	}
	s, id, err := w.parse(now)
	if !is.same(w.look()) {
		return nil // they are being written
	}
	w.seen, w.read = is, now
	if self.Part == PartUnknown {
		self.Part = id.Part // the certificate of before was of an earlier release
	}
	if err == nil && id != self {
		err = fmt.Errorf("load certificate: %w: %s is of %v, and this process is %v: put its own certificate there, or start it anew",
			ErrInvalid, w.Cert, id, self)
	}
	if w.refused = err != nil; err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: put it back", err)
		}
		if changed || now.Sub(w.toldRefusal) >= tellEvery {
			w.toldRefusal = now
			w.Log.Error("changed certificate files cannot be used, and the old ones stay in force, authorities among them", "error", err)
		}
		return nil
	}
	w.Log.Info("changed certificate files are in force", "identity", self.String(), "expires",
		s.cert.Leaf.NotAfter.UTC().Format(time.RFC3339), "file", w.Cert)
	return s
}

// tell warns of a certificate that ends soon.
func (w *watched) tell(s *set, now time.Time) {
	leaf := s.cert.Leaf
	left, ago := leaf.NotAfter.Sub(now), now.Sub(w.toldEnd)
	at := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case left <= 0 && ago >= tellEvery:
		w.Log.Error("the certificate has expired: nobody accepts it; put a new one into its file, which is read without a restart", "file",
			w.Cert, "expired", at)
	case left > 0 && left < leaf.NotAfter.Sub(leaf.NotBefore)/warnPart && ago >= warnEvery:
		w.Log.Warn("the certificate expires soon: put a new one into its file, which is read without a restart", "file", w.Cert, "expires",
			at)
	default:
		return
	}
	w.toldEnd = now
}
