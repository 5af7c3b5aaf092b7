// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"time"

	"github.com/weir-storage/weir/federation/paper"
)

// Every method may return, besides what it lists: ErrUnavailable (no answer; nothing was changed),
// ErrAccess, and the context's own error. Methods that change something may return ErrUnknown (no
// answer; it may have been applied or may still be) and ErrInvalid (a rule of the record is broken;
// nothing was sent). Reads may return ErrVersion. Methods have deadlines of their own besides the
// context's.

// ControlStore has the control records.
type ControlStore interface {
	// GetControl returns ErrNotFound for a volume that has none.
	GetControl(ctx context.Context, volume string) (Control, Revision, error)
	// SwapControl replaces the record that has revision prev; 0 creates it. It sets next.Change.
	// ErrConflict: definitely not applied. ErrRewound: the registry went back (protocol-7); nothing
	// was changed. It is ErrUnavailable too if ctx ended before anything was sent.
	SwapControl(ctx context.Context, volume string, prev Revision, next Control) (Revision, error)
	// DeleteControl removes the record that has revision prev. A volume's uuid is never used again.
	// Errors as SwapControl; a record that is not there is ErrConflict.
	DeleteControl(ctx context.Context, volume string, prev Revision) error
}

// Volumes has the desired state.
type Volumes interface {
	// CreateVolume writes the record and its keyring, and takes its name, all or nothing. A keyring
	// that is there without a volume, of an earlier release's try, is replaced. The zero Keyring
	// writes none: then nobody can open the volume. ErrNameTaken; ErrConflict when the uuid exists.
	CreateVolume(ctx context.Context, v Volume, k Keyring) (Revision, error)
	// GetVolume returns ErrNotFound for an unknown uuid. A deleted volume is still found.
	GetVolume(ctx context.Context, uuid string) (Volume, Revision, error)
	// UpdateVolume replaces the record that has revision prev, as CheckUpdate allows. ErrConflict.
	UpdateVolume(ctx context.Context, prev Revision, v Volume) (Revision, error)
	// ListVolumes returns all, deleted ones too, by uuid. One record that cannot be read fails the
	// call.
	ListVolumes(ctx context.Context) ([]VolumeAt, error)
}

// Purges ends deleted volumes.
type Purges interface {
	// PurgeVolume removes all records of the deleted volume p.Volume, whose own is at revision
	// prev, gives its name back, and writes p. ErrConflict; ErrInvalid when it is not marked
	// deleted.
	PurgeVolume(ctx context.Context, prev Revision, p Purge) error
	// LeavePurge takes a gateway out of Pending: it has nothing of the volume any more. A purge
	// that is not known, or without that gateway, is no error.
	LeavePurge(ctx context.Context, volume, gateway string) error
	// DeletePurge forgets a purge; one that is not there is no error.
	DeletePurge(ctx context.Context, volume string) error
	// ListPurges returns all, by volume.
	ListPurges(ctx context.Context) ([]Purge, error)
}

// VolumeAt is a volume's record and its revision.
type VolumeAt struct {
	Volume   Volume
	Revision Revision
}

// Names finds volumes by name.
type Names interface {
	// FindVolume returns ErrNotFound for an unknown name, and ErrAccess for that of a volume that
	// this organization is not shown. A deleted volume is still found.
	FindVolume(ctx context.Context, name string) (Volume, Revision, error)
}

// Sites has sites, their gateways and heartbeats.
type Sites interface {
	// Register stores MergeSite of what is there and s. ErrNameTaken when the site belongs to
	// another organization or one of the gateways to another site.
	Register(ctx context.Context, s Site) error
	// Sites returns all by name, with the gateways that are alive.
	Sites(ctx context.Context) ([]SiteStatus, error)
	// RemoveSite forgets the site and its gateways; one that is not there is no error.
	RemoveSite(ctx context.Context, name string) error
	// RemoveGateway forgets one gateway of a site; one that is not there is no error.
	RemoveGateway(ctx context.Context, site, gateway string) error
	// Heartbeat keeps a key alive until the handle is stopped or the registry hears nothing for ttl
	// (at least one second, whole seconds). A second heartbeat of a gateway replaces the first. It
	// does not end with ctx.
	Heartbeat(ctx context.Context, a Alive, ttl time.Duration) (Heartbeat, error)
}

// Heartbeat is a running heartbeat. It keeps trying while the registry is down, and starts anew
// when its lease expired meanwhile.
type Heartbeat interface {
	// Stop ends it and removes the key if the registry answers before ctx ends. Call it once.
	Stop(ctx context.Context) error
}

// Admissions has who may use which volume at which site.
type Admissions interface {
	// PutAdmission writes or replaces.
	PutAdmission(ctx context.Context, a Admission) error
	// DeleteAdmission: one that is not there is no error.
	DeleteAdmission(ctx context.Context, volume, site, client string) error
	// ListAdmissions returns a site's admissions, or all for "", by site, volume and client.
	ListAdmissions(ctx context.Context, site string) ([]Admission, error)
}

// Keyrings has the wrapped data keys.
type Keyrings interface {
	// GetKeyring returns ErrNotFound for a volume that has none.
	GetKeyring(ctx context.Context, volume string) (Keyring, Revision, error)
	// PutKeyring replaces the one that has revision prev; 0 creates it. ErrConflict.
	PutKeyring(ctx context.Context, prev Revision, k Keyring) (Revision, error)
}

// Statuses has the observed state.
type Statuses interface {
	// PutObserved replaces what o.Gateway wrote before. At most every 30 s per volume: it is for
	// people.
	PutObserved(ctx context.Context, o Observed) error
	// ListObserved returns what each gateway wrote about the volume, by gateway.
	ListObserved(ctx context.Context, volume string) ([]Observed, error)
}

// Claims has which clusters' objects use a volume.
type Claims interface {
	// PutClaim writes or replaces. Read the volume's record afterwards: see Volume.Closing.
	PutClaim(ctx context.Context, c Claim) error
	// DeleteClaim: one that is not there is no error.
	DeleteClaim(ctx context.Context, volume, site, namespace, name string) error
	// ListClaims returns a volume's claims, or all for "", by volume, site, namespace and name.
	ListClaims(ctx context.Context, volume string) ([]Claim, error)
}

// Attachments has which nodes may use a volume.
type Attachments interface {
	// PutAttachment writes or replaces.
	PutAttachment(ctx context.Context, a Attachment) error
	// GetAttachment returns ErrNotFound when the node has none.
	GetAttachment(ctx context.Context, site, volume, node string) (Attachment, error)
	// DeleteAttachment: one that is not there is no error.
	DeleteAttachment(ctx context.Context, site, volume, node string) error
	// ListAttachments returns a site's, or all for "", by site, volume and node.
	ListAttachments(ctx context.Context, site string) ([]Attachment, error)
}

// Losses has which sites a person declared lost.
type Losses interface {
	// PutLost writes or replaces.
	PutLost(ctx context.Context, l Lost) error
	// DeleteLost: one that is not there is no error.
	DeleteLost(ctx context.Context, site string) error
	// ListLost returns all, by site.
	ListLost(ctx context.Context) ([]Lost, error)
}

// Charters has the federation's charter.
type Charters interface {
	// GetCharter returns ErrNotFound when there is none. The caller checks its signature.
	GetCharter(ctx context.Context) (Charter, Revision, error)
	// PutCharter replaces the one that has revision prev; 0 creates it. ErrConflict.
	PutCharter(ctx context.Context, prev Revision, c Charter) (Revision, error)
}

// Signatures has which records nobody signed (package signed).
type Signatures interface {
	// Unsigned returns the keys of records that have no signature of who may write them, but for
	// those that gateways write again by themselves.
	Unsigned(ctx context.Context) ([]string, error)
	// Endorse signs a record as it is, which an administrator may. One that is gone is no error.
	// ErrConflict: it changed meanwhile.
	Endorse(ctx context.Context, key string) error
}

// Watcher follows changes without polling.
type Watcher interface {
	// Watch calls fn, from one goroutine, for every record that exists, then once with Kind
	// KindSynced, and then for every change in order of revision, until ctx ends or fn returns an
	// error, which it returns. It lives through an unreachable registry and through a compaction:
	// then it lists anew, sends what changed or vanished meanwhile, and sends KindSynced again.
	// States in between may be skipped. The Event is fn's to keep.
	Watch(ctx context.Context, fn func(Event) error) error
	// Head returns the registry's identity and current revision, read with a quorum.
	Head(ctx context.Context) (Head, error)
}

// Rewinds handles a registry that went back (protocol-7).
type Rewinds interface {
	// Trusted returns why this connection refuses the registry, or nil. While it refuses it, reads
	// are answered from the guard's archive, and changes return ErrRewound.
	Trusted() error
	// Tend looks whether the registry went back, or another gateway says so. If it did, Tend
	// writes this gateway's notice and testimonies, or accepts the registry again if it was
	// reconciled since. Call it every few seconds, from one goroutine. A connection without a guard
	// does nothing.
	Tend(ctx context.Context, gateway string, now time.Time) error
	// Notices returns who says that the registry went back, by gateway.
	Notices(ctx context.Context) ([]Notice, error)
	// ReadRewind returns what the registry has about having gone back.
	ReadRewind(ctx context.Context) (Rewind, error)
	// Reconcile makes the corrections of w's plan, each if the record is still as it was read, and
	// then ends the matter if no gateway said anything since: notices and testimonies are deleted,
	// and the decision is written down. It may be called again after any error, with what is read
	// then. ErrConflict: something changed since.
	Reconcile(ctx context.Context, w Rewind, plan []Correction, decision Reconciliation) error
}

// Registry is the whole port. Consumers ask for the smallest part that they need.
type Registry interface {
	ControlStore
	Volumes
	Purges
	Names
	Sites
	Admissions
	Keyrings
	Statuses
	Claims
	Attachments
	Losses
	Charters
	paper.Book
	Signatures
	Watcher
	Rewinds
	// Close ends watches and heartbeats (whose keys then expire) and connections.
	Close() error
}
