// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"fmt"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// kind is what pages say of a kind of room.
type kind struct {
	Name v1alpha1.RoomKind
	// Lent is what is lent; Guest and Host are what that means for each side.
	Lent, Guest, Host string
	// Used is what is counted, as the head of a column; GiB is the same, as the label of a chart.
	Used, GiB string
	// Ends and Grace are what ends when the term, or the grace after it, does. Read is what the
	// grace is for. Empty: nothing.
	Ends, Grace, Read string
	// Drained, Gone and Delete help who says that.
	Drained, Gone, Delete string
	// Borrowed and Lends are sums of what is used, at others and by others.
	Borrowed, Lends string
	// Store: it is behind an endpoint, and reads and writes are counted.
	Store bool
}

// deletes is what a host does whose guest needs nothing any more.
const deletes = "The host deletes everything that is there, at once. The operator says this by itself when volumes have left."

// allKinds are all, in the order in which a form has them.
var allKinds = []kind{
	{
		Name: v1alpha1.RoomStore, Store: true,
		Lent:  "Room for objects behind S3, counted by the bytes that are stored.",
		Guest: "Its gateways put sealed segments of its volumes there, each as far as it has room.",
		Host:  "It runs a store, and says where that is. It can read nothing of what is stored.",
		Used:  "Stored", GiB: "GiB stored",
		Ends: "the guest can write no more", Grace: "the guest can read no more", Read: "in which the guest can still read",
		Drained: deletes, Gone: "The agreement is over for us, and the host deletes everything when it is back. It is not taken back.",
		Delete:   "The guest did not bring it elsewhere in time. What is deleted is gone.",
		Borrowed: "stored at others", Lends: "stored by others",
	}, {
		Name:  v1alpha1.RoomCopy,
		Lent:  "Copies of the guest's volumes at the site's gateways, counted by the volumes' sizes.",
		Guest: "Its operator places copies of its volumes there: blind ones, if their policy keeps the key from the site.",
		Host:  "The site's gateways take the copies, and delete them at the end. There is no store to run.",
		Used:  "Volumes' sizes", GiB: "GiB of volumes",
		Ends: "no other copies can be placed there", Grace: "the host may say that it deletes", Read: "in which copies stay",
		Drained: deletes, Gone: "The agreement is over for us, and the host deletes the copies when it is back. It is not taken back.",
		Delete:   "The guest did not have its copies elsewhere in time. They stay, and are counted, until it takes them away.",
		Borrowed: "of volumes copied at others", Lends: "of volumes copied for others",
	}, {
		Name:  v1alpha1.RoomCache,
		Lent:  "Room in the cache pools of the site's gateways, counted by what the guest's volumes reserve.",
		Guest: "What its volumes' policies reserve is kept there, as far as the amount goes: others do not push it out.",
		Host:  "The site's gateways keep that room until the end. Nothing has to be deleted then.",
		Used:  "Reserved", GiB: "GiB reserved",
		Ends:    "the room is not kept any more",
		Drained: "The room is the host's again, at once. The operator says this by itself when the agreement ends.",
		Gone:    "The agreement is over for us. It is not taken back.", Delete: "The room is not kept any more. It is not taken back.",
		Borrowed: "of cache reserved at others", Lends: "of cache reserved by others",
	},
}

// kindOf is that of a name. What has none, or one of a later release, is shown as a store.
func kindOf(name any) kind {
	is := cmp.Or(v1alpha1.RoomKind(fmt.Sprint(name)), v1alpha1.RoomStore)
	for _, k := range allKinds {
		if k.Name == is {
			return k
		}
	}
	k := allKinds[0]
	k.Name, k.Lent, k.Guest, k.Host = is, "", "", ""
	return k
}

// chosen reads a kind of a form; "": there is none.
func chosen(name string) (v1alpha1.RoomKind, error) {
	for _, k := range allKinds {
		if name == "" || string(k.Name) == name {
			return v1alpha1.RoomKind(name), nil
		}
	}
	return "", wrong("Kind: %q: choose Store, Copy or Cache.", name)
}
