// SPDX-License-Identifier: Apache-2.0

package xdr

import "strconv"

// Op is an operation number of COMPOUND (nfs_opnum4).
type Op uint32

// The operations of RFC 8881, RFC 7862 and RFC 8276.
const (
	OP_ACCESS               Op = 3
	OP_CLOSE                Op = 4
	OP_COMMIT               Op = 5
	OP_CREATE               Op = 6
	OP_DELEGPURGE           Op = 7
	OP_DELEGRETURN          Op = 8
	OP_GETATTR              Op = 9
	OP_GETFH                Op = 10
	OP_LINK                 Op = 11
	OP_LOCK                 Op = 12
	OP_LOCKT                Op = 13
	OP_LOCKU                Op = 14
	OP_LOOKUP               Op = 15
	OP_LOOKUPP              Op = 16
	OP_NVERIFY              Op = 17
	OP_OPEN                 Op = 18
	OP_OPENATTR             Op = 19
	OP_OPEN_CONFIRM         Op = 20
	OP_OPEN_DOWNGRADE       Op = 21
	OP_PUTFH                Op = 22
	OP_PUTPUBFH             Op = 23
	OP_PUTROOTFH            Op = 24
	OP_READ                 Op = 25
	OP_READDIR              Op = 26
	OP_READLINK             Op = 27
	OP_REMOVE               Op = 28
	OP_RENAME               Op = 29
	OP_RENEW                Op = 30
	OP_RESTOREFH            Op = 31
	OP_SAVEFH               Op = 32
	OP_SECINFO              Op = 33
	OP_SETATTR              Op = 34
	OP_SETCLIENTID          Op = 35
	OP_SETCLIENTID_CONFIRM  Op = 36
	OP_VERIFY               Op = 37
	OP_WRITE                Op = 38
	OP_RELEASE_LOCKOWNER    Op = 39
	OP_BACKCHANNEL_CTL      Op = 40
	OP_BIND_CONN_TO_SESSION Op = 41
	OP_EXCHANGE_ID          Op = 42
	OP_CREATE_SESSION       Op = 43
	OP_DESTROY_SESSION      Op = 44
	OP_FREE_STATEID         Op = 45
	OP_GET_DIR_DELEGATION   Op = 46
	OP_GETDEVICEINFO        Op = 47
	OP_GETDEVICELIST        Op = 48
	OP_LAYOUTCOMMIT         Op = 49
	OP_LAYOUTGET            Op = 50
	OP_LAYOUTRETURN         Op = 51
	OP_SECINFO_NO_NAME      Op = 52
	OP_SEQUENCE             Op = 53
	OP_SET_SSV              Op = 54
	OP_TEST_STATEID         Op = 55
	OP_WANT_DELEGATION      Op = 56
	OP_DESTROY_CLIENTID     Op = 57
	OP_RECLAIM_COMPLETE     Op = 58
	OP_ALLOCATE             Op = 59
	OP_COPY                 Op = 60
	OP_COPY_NOTIFY          Op = 61
	OP_DEALLOCATE           Op = 62
	OP_IO_ADVISE            Op = 63
	OP_LAYOUTERROR          Op = 64
	OP_LAYOUTSTATS          Op = 65
	OP_OFFLOAD_CANCEL       Op = 66
	OP_OFFLOAD_STATUS       Op = 67
	OP_READ_PLUS            Op = 68
	OP_SEEK                 Op = 69
	OP_WRITE_SAME           Op = 70
	OP_CLONE                Op = 71
	OP_GETXATTR             Op = 72
	OP_SETXATTR             Op = 73
	OP_LISTXATTRS           Op = 74
	OP_REMOVEXATTR          Op = 75
	OP_ILLEGAL              Op = 10044
)

// The highest operation of each minor version.
const (
	LastOp41 = OP_RECLAIM_COMPLETE
	LastOp42 = OP_REMOVEXATTR
)

// String returns the RFC's name.
func (v Op) String() string {
	if s, ok := opNames[v]; ok {
		return s
	}
	return strconv.Itoa(int(v))
}

var opNames = map[Op]string{
	OP_ACCESS:               "ACCESS",
	OP_CLOSE:                "CLOSE",
	OP_COMMIT:               "COMMIT",
	OP_CREATE:               "CREATE",
	OP_DELEGPURGE:           "DELEGPURGE",
	OP_DELEGRETURN:          "DELEGRETURN",
	OP_GETATTR:              "GETATTR",
	OP_GETFH:                "GETFH",
	OP_LINK:                 "LINK",
	OP_LOCK:                 "LOCK",
	OP_LOCKT:                "LOCKT",
	OP_LOCKU:                "LOCKU",
	OP_LOOKUP:               "LOOKUP",
	OP_LOOKUPP:              "LOOKUPP",
	OP_NVERIFY:              "NVERIFY",
	OP_OPEN:                 "OPEN",
	OP_OPENATTR:             "OPENATTR",
	OP_OPEN_CONFIRM:         "OPEN_CONFIRM",
	OP_OPEN_DOWNGRADE:       "OPEN_DOWNGRADE",
	OP_PUTFH:                "PUTFH",
	OP_PUTPUBFH:             "PUTPUBFH",
	OP_PUTROOTFH:            "PUTROOTFH",
	OP_READ:                 "READ",
	OP_READDIR:              "READDIR",
	OP_READLINK:             "READLINK",
	OP_REMOVE:               "REMOVE",
	OP_RENAME:               "RENAME",
	OP_RENEW:                "RENEW",
	OP_RESTOREFH:            "RESTOREFH",
	OP_SAVEFH:               "SAVEFH",
	OP_SECINFO:              "SECINFO",
	OP_SETATTR:              "SETATTR",
	OP_SETCLIENTID:          "SETCLIENTID",
	OP_SETCLIENTID_CONFIRM:  "SETCLIENTID_CONFIRM",
	OP_VERIFY:               "VERIFY",
	OP_WRITE:                "WRITE",
	OP_RELEASE_LOCKOWNER:    "RELEASE_LOCKOWNER",
	OP_BACKCHANNEL_CTL:      "BACKCHANNEL_CTL",
	OP_BIND_CONN_TO_SESSION: "BIND_CONN_TO_SESSION",
	OP_EXCHANGE_ID:          "EXCHANGE_ID",
	OP_CREATE_SESSION:       "CREATE_SESSION",
	OP_DESTROY_SESSION:      "DESTROY_SESSION",
	OP_FREE_STATEID:         "FREE_STATEID",
	OP_GET_DIR_DELEGATION:   "GET_DIR_DELEGATION",
	OP_GETDEVICEINFO:        "GETDEVICEINFO",
	OP_GETDEVICELIST:        "GETDEVICELIST",
	OP_LAYOUTCOMMIT:         "LAYOUTCOMMIT",
	OP_LAYOUTGET:            "LAYOUTGET",
	OP_LAYOUTRETURN:         "LAYOUTRETURN",
	OP_SECINFO_NO_NAME:      "SECINFO_NO_NAME",
	OP_SEQUENCE:             "SEQUENCE",
	OP_SET_SSV:              "SET_SSV",
	OP_TEST_STATEID:         "TEST_STATEID",
	OP_WANT_DELEGATION:      "WANT_DELEGATION",
	OP_DESTROY_CLIENTID:     "DESTROY_CLIENTID",
	OP_RECLAIM_COMPLETE:     "RECLAIM_COMPLETE",
	OP_ALLOCATE:             "ALLOCATE",
	OP_COPY:                 "COPY",
	OP_COPY_NOTIFY:          "COPY_NOTIFY",
	OP_DEALLOCATE:           "DEALLOCATE",
	OP_IO_ADVISE:            "IO_ADVISE",
	OP_LAYOUTERROR:          "LAYOUTERROR",
	OP_LAYOUTSTATS:          "LAYOUTSTATS",
	OP_OFFLOAD_CANCEL:       "OFFLOAD_CANCEL",
	OP_OFFLOAD_STATUS:       "OFFLOAD_STATUS",
	OP_READ_PLUS:            "READ_PLUS",
	OP_SEEK:                 "SEEK",
	OP_WRITE_SAME:           "WRITE_SAME",
	OP_CLONE:                "CLONE",
	OP_GETXATTR:             "GETXATTR",
	OP_SETXATTR:             "SETXATTR",
	OP_LISTXATTRS:           "LISTXATTRS",
	OP_REMOVEXATTR:          "REMOVEXATTR",
	OP_ILLEGAL:              "ILLEGAL",
}
