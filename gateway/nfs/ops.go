// SPDX-License-Identifier: Apache-2.0

package nfs

import "github.com/weir-storage/weir/gateway/nfs/xdr"

// operation is how one operation is executed.
type operation struct {
	// run decodes the arguments. Only if they decode, it executes the operation and
	// encodes the result. If it fails, what it encoded is removed again, except with
	// NFS4ERR_DENIED. It is nil for operations that are not supported.
	run func(*call) xdr.Status
	// changes says that the operation changes something. A reply that may not fit is
	// then refused before it is executed.
	changes bool
	illegal bool
}

var operations = map[xdr.Op]operation{
	xdr.OP_EXCHANGE_ID:          {run: (*call).exchangeID},
	xdr.OP_CREATE_SESSION:       {run: (*call).createSession, changes: true},
	xdr.OP_DESTROY_SESSION:      {run: (*call).destroySession, changes: true},
	xdr.OP_DESTROY_CLIENTID:     {run: (*call).destroyClientID, changes: true},
	xdr.OP_BIND_CONN_TO_SESSION: {run: (*call).bindConnToSession},
	xdr.OP_BACKCHANNEL_CTL:      {run: (*call).backchannelCtl},
	xdr.OP_SEQUENCE:             {run: (*call).sequence},
	xdr.OP_RECLAIM_COMPLETE:     {run: (*call).reclaimComplete, changes: true},

	xdr.OP_PUTROOTFH:       {run: (*call).putRootFH},
	xdr.OP_PUTPUBFH:        {run: (*call).putRootFH},
	xdr.OP_PUTFH:           {run: (*call).putFH},
	xdr.OP_GETFH:           {run: (*call).getFH},
	xdr.OP_SAVEFH:          {run: (*call).saveFH},
	xdr.OP_RESTOREFH:       {run: (*call).restoreFH},
	xdr.OP_LOOKUP:          {run: (*call).lookup},
	xdr.OP_LOOKUPP:         {run: (*call).lookupParent},
	xdr.OP_SECINFO:         {run: (*call).secinfo},
	xdr.OP_SECINFO_NO_NAME: {run: (*call).secinfoNoName},

	xdr.OP_GETATTR: {run: (*call).getAttr},
	xdr.OP_SETATTR: {run: (*call).setAttr, changes: true},
	xdr.OP_VERIFY:  {run: (*call).verify},
	xdr.OP_NVERIFY: {run: (*call).nverify},
	xdr.OP_ACCESS:  {run: (*call).access},

	xdr.OP_READ:       {run: (*call).readFile},
	xdr.OP_WRITE:      {run: (*call).write, changes: true},
	xdr.OP_COMMIT:     {run: (*call).commit, changes: true},
	xdr.OP_SEEK:       {run: (*call).seek},
	xdr.OP_DEALLOCATE: {run: (*call).deallocate, changes: true},

	xdr.OP_READLINK: {run: (*call).readLink},
	xdr.OP_READDIR:  {run: (*call).readDir},
	xdr.OP_CREATE:   {run: (*call).create, changes: true},
	xdr.OP_REMOVE:   {run: (*call).remove, changes: true},
	xdr.OP_RENAME:   {run: (*call).rename, changes: true},
	xdr.OP_LINK:     {run: (*call).link, changes: true},

	xdr.OP_OPEN:           {run: (*call).open, changes: true},
	xdr.OP_CLOSE:          {run: (*call).closeFile, changes: true},
	xdr.OP_OPEN_DOWNGRADE: {run: (*call).openDowngrade, changes: true},
	xdr.OP_LOCK:           {run: (*call).lock, changes: true},
	xdr.OP_LOCKT:          {run: (*call).lockTest},
	xdr.OP_LOCKU:          {run: (*call).unlock, changes: true},
	xdr.OP_TEST_STATEID:   {run: (*call).testStateid},
	xdr.OP_FREE_STATEID:   {run: (*call).freeStateid, changes: true},
	xdr.OP_DELEGRETURN:    {run: (*call).delegReturn},

	xdr.OP_GETXATTR:    {run: (*call).getXattr},
	xdr.OP_SETXATTR:    {run: (*call).setXattr, changes: true},
	xdr.OP_LISTXATTRS:  {run: (*call).listXattrs},
	xdr.OP_REMOVEXATTR: {run: (*call).removeXattr, changes: true},
}

// byOp returns operations, indexed by number.
func byOp() *[xdr.LastOp42 + 1]operation {
	var t [xdr.LastOp42 + 1]operation
	for op, e := range operations {
		t[op] = e
	}
	return &t
}

var opTable = byOp()

// entry returns how op is executed in a minor version.
func entry(op xdr.Op, minor uint32) operation {
	last := xdr.LastOp41
	if minor >= 2 {
		last = xdr.LastOp42
	}
	if op < xdr.OP_ACCESS || op > last {
		return operation{illegal: true}
	}
	return opTable[op]
}
