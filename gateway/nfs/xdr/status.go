// SPDX-License-Identifier: Apache-2.0

package xdr

import "strconv"

// Status is an nfsstat4.
type Status uint32

// The outcomes of operations, RFC 8881 section 15.1, RFC 7862 section 11 and RFC 8276 section 8.5.
const (
	NFS4_OK                           Status = 0
	NFS4ERR_PERM                      Status = 1
	NFS4ERR_NOENT                     Status = 2
	NFS4ERR_IO                        Status = 5
	NFS4ERR_NXIO                      Status = 6
	NFS4ERR_ACCESS                    Status = 13
	NFS4ERR_EXIST                     Status = 17
	NFS4ERR_XDEV                      Status = 18
	NFS4ERR_NOTDIR                    Status = 20
	NFS4ERR_ISDIR                     Status = 21
	NFS4ERR_INVAL                     Status = 22
	NFS4ERR_FBIG                      Status = 27
	NFS4ERR_NOSPC                     Status = 28
	NFS4ERR_ROFS                      Status = 30
	NFS4ERR_MLINK                     Status = 31
	NFS4ERR_NAMETOOLONG               Status = 63
	NFS4ERR_NOTEMPTY                  Status = 66
	NFS4ERR_DQUOT                     Status = 69
	NFS4ERR_STALE                     Status = 70
	NFS4ERR_BADHANDLE                 Status = 10001
	NFS4ERR_BAD_COOKIE                Status = 10003
	NFS4ERR_NOTSUPP                   Status = 10004
	NFS4ERR_TOOSMALL                  Status = 10005
	NFS4ERR_SERVERFAULT               Status = 10006
	NFS4ERR_BADTYPE                   Status = 10007
	NFS4ERR_DELAY                     Status = 10008
	NFS4ERR_SAME                      Status = 10009
	NFS4ERR_DENIED                    Status = 10010
	NFS4ERR_EXPIRED                   Status = 10011
	NFS4ERR_LOCKED                    Status = 10012
	NFS4ERR_GRACE                     Status = 10013
	NFS4ERR_FHEXPIRED                 Status = 10014
	NFS4ERR_SHARE_DENIED              Status = 10015
	NFS4ERR_WRONGSEC                  Status = 10016
	NFS4ERR_CLID_INUSE                Status = 10017
	NFS4ERR_RESOURCE                  Status = 10018
	NFS4ERR_MOVED                     Status = 10019
	NFS4ERR_NOFILEHANDLE              Status = 10020
	NFS4ERR_MINOR_VERS_MISMATCH       Status = 10021
	NFS4ERR_STALE_CLIENTID            Status = 10022
	NFS4ERR_STALE_STATEID             Status = 10023
	NFS4ERR_OLD_STATEID               Status = 10024
	NFS4ERR_BAD_STATEID               Status = 10025
	NFS4ERR_BAD_SEQID                 Status = 10026
	NFS4ERR_NOT_SAME                  Status = 10027
	NFS4ERR_LOCK_RANGE                Status = 10028
	NFS4ERR_SYMLINK                   Status = 10029
	NFS4ERR_RESTOREFH                 Status = 10030
	NFS4ERR_LEASE_MOVED               Status = 10031
	NFS4ERR_ATTRNOTSUPP               Status = 10032
	NFS4ERR_NO_GRACE                  Status = 10033
	NFS4ERR_RECLAIM_BAD               Status = 10034
	NFS4ERR_RECLAIM_CONFLICT          Status = 10035
	NFS4ERR_BADXDR                    Status = 10036
	NFS4ERR_LOCKS_HELD                Status = 10037
	NFS4ERR_OPENMODE                  Status = 10038
	NFS4ERR_BADOWNER                  Status = 10039
	NFS4ERR_BADCHAR                   Status = 10040
	NFS4ERR_BADNAME                   Status = 10041
	NFS4ERR_BAD_RANGE                 Status = 10042
	NFS4ERR_LOCK_NOTSUPP              Status = 10043
	NFS4ERR_OP_ILLEGAL                Status = 10044
	NFS4ERR_DEADLOCK                  Status = 10045
	NFS4ERR_FILE_OPEN                 Status = 10046
	NFS4ERR_ADMIN_REVOKED             Status = 10047
	NFS4ERR_CB_PATH_DOWN              Status = 10048
	NFS4ERR_BADIOMODE                 Status = 10049
	NFS4ERR_BADLAYOUT                 Status = 10050
	NFS4ERR_BAD_SESSION_DIGEST        Status = 10051
	NFS4ERR_BADSESSION                Status = 10052
	NFS4ERR_BADSLOT                   Status = 10053
	NFS4ERR_COMPLETE_ALREADY          Status = 10054
	NFS4ERR_CONN_NOT_BOUND_TO_SESSION Status = 10055
	NFS4ERR_DELEG_ALREADY_WANTED      Status = 10056
	NFS4ERR_BACK_CHAN_BUSY            Status = 10057
	NFS4ERR_LAYOUTTRYLATER            Status = 10058
	NFS4ERR_LAYOUTUNAVAILABLE         Status = 10059
	NFS4ERR_NOMATCHING_LAYOUT         Status = 10060
	NFS4ERR_RECALLCONFLICT            Status = 10061
	NFS4ERR_UNKNOWN_LAYOUTTYPE        Status = 10062
	NFS4ERR_SEQ_MISORDERED            Status = 10063
	NFS4ERR_SEQUENCE_POS              Status = 10064
	NFS4ERR_REQ_TOO_BIG               Status = 10065
	NFS4ERR_REP_TOO_BIG               Status = 10066
	NFS4ERR_REP_TOO_BIG_TO_CACHE      Status = 10067
	NFS4ERR_RETRY_UNCACHED_REP        Status = 10068
	NFS4ERR_UNSAFE_COMPOUND           Status = 10069
	NFS4ERR_TOO_MANY_OPS              Status = 10070
	NFS4ERR_OP_NOT_IN_SESSION         Status = 10071
	NFS4ERR_HASH_ALG_UNSUPP           Status = 10072
	NFS4ERR_CLIENTID_BUSY             Status = 10074
	NFS4ERR_PNFS_IO_HOLE              Status = 10075
	NFS4ERR_SEQ_FALSE_RETRY           Status = 10076
	NFS4ERR_BAD_HIGH_SLOT             Status = 10077
	NFS4ERR_DEADSESSION               Status = 10078
	NFS4ERR_ENCR_ALG_UNSUPP           Status = 10079
	NFS4ERR_PNFS_NO_LAYOUT            Status = 10080
	NFS4ERR_NOT_ONLY_OP               Status = 10081
	NFS4ERR_WRONG_CRED                Status = 10082
	NFS4ERR_WRONG_TYPE                Status = 10083
	NFS4ERR_DIRDELEG_UNAVAIL          Status = 10084
	NFS4ERR_REJECT_DELEG              Status = 10085
	NFS4ERR_RETURNCONFLICT            Status = 10086
	NFS4ERR_DELEG_REVOKED             Status = 10087
	NFS4ERR_PARTNER_NOTSUPP           Status = 10088
	NFS4ERR_PARTNER_NO_AUTH           Status = 10089
	NFS4ERR_UNION_NOTSUPP             Status = 10090
	NFS4ERR_OFFLOAD_DENIED            Status = 10091
	NFS4ERR_WRONG_LFS                 Status = 10092
	NFS4ERR_BADLABEL                  Status = 10093
	NFS4ERR_OFFLOAD_NO_REQS           Status = 10094
	NFS4ERR_NOXATTR                   Status = 10095
	NFS4ERR_XATTR2BIG                 Status = 10096
)

// Error returns the RFC's name, so that a Status can be an error.
func (v Status) Error() string { return v.String() }

// String returns the RFC's name.
func (v Status) String() string {
	if s, ok := statusNames[v]; ok {
		return s
	}
	return strconv.Itoa(int(v))
}

var statusNames = map[Status]string{
	NFS4_OK:                           "NFS4_OK",
	NFS4ERR_PERM:                      "NFS4ERR_PERM",
	NFS4ERR_NOENT:                     "NFS4ERR_NOENT",
	NFS4ERR_IO:                        "NFS4ERR_IO",
	NFS4ERR_NXIO:                      "NFS4ERR_NXIO",
	NFS4ERR_ACCESS:                    "NFS4ERR_ACCESS",
	NFS4ERR_EXIST:                     "NFS4ERR_EXIST",
	NFS4ERR_XDEV:                      "NFS4ERR_XDEV",
	NFS4ERR_NOTDIR:                    "NFS4ERR_NOTDIR",
	NFS4ERR_ISDIR:                     "NFS4ERR_ISDIR",
	NFS4ERR_INVAL:                     "NFS4ERR_INVAL",
	NFS4ERR_FBIG:                      "NFS4ERR_FBIG",
	NFS4ERR_NOSPC:                     "NFS4ERR_NOSPC",
	NFS4ERR_ROFS:                      "NFS4ERR_ROFS",
	NFS4ERR_MLINK:                     "NFS4ERR_MLINK",
	NFS4ERR_NAMETOOLONG:               "NFS4ERR_NAMETOOLONG",
	NFS4ERR_NOTEMPTY:                  "NFS4ERR_NOTEMPTY",
	NFS4ERR_DQUOT:                     "NFS4ERR_DQUOT",
	NFS4ERR_STALE:                     "NFS4ERR_STALE",
	NFS4ERR_BADHANDLE:                 "NFS4ERR_BADHANDLE",
	NFS4ERR_BAD_COOKIE:                "NFS4ERR_BAD_COOKIE",
	NFS4ERR_NOTSUPP:                   "NFS4ERR_NOTSUPP",
	NFS4ERR_TOOSMALL:                  "NFS4ERR_TOOSMALL",
	NFS4ERR_SERVERFAULT:               "NFS4ERR_SERVERFAULT",
	NFS4ERR_BADTYPE:                   "NFS4ERR_BADTYPE",
	NFS4ERR_DELAY:                     "NFS4ERR_DELAY",
	NFS4ERR_SAME:                      "NFS4ERR_SAME",
	NFS4ERR_DENIED:                    "NFS4ERR_DENIED",
	NFS4ERR_EXPIRED:                   "NFS4ERR_EXPIRED",
	NFS4ERR_LOCKED:                    "NFS4ERR_LOCKED",
	NFS4ERR_GRACE:                     "NFS4ERR_GRACE",
	NFS4ERR_FHEXPIRED:                 "NFS4ERR_FHEXPIRED",
	NFS4ERR_SHARE_DENIED:              "NFS4ERR_SHARE_DENIED",
	NFS4ERR_WRONGSEC:                  "NFS4ERR_WRONGSEC",
	NFS4ERR_CLID_INUSE:                "NFS4ERR_CLID_INUSE",
	NFS4ERR_RESOURCE:                  "NFS4ERR_RESOURCE",
	NFS4ERR_MOVED:                     "NFS4ERR_MOVED",
	NFS4ERR_NOFILEHANDLE:              "NFS4ERR_NOFILEHANDLE",
	NFS4ERR_MINOR_VERS_MISMATCH:       "NFS4ERR_MINOR_VERS_MISMATCH",
	NFS4ERR_STALE_CLIENTID:            "NFS4ERR_STALE_CLIENTID",
	NFS4ERR_STALE_STATEID:             "NFS4ERR_STALE_STATEID",
	NFS4ERR_OLD_STATEID:               "NFS4ERR_OLD_STATEID",
	NFS4ERR_BAD_STATEID:               "NFS4ERR_BAD_STATEID",
	NFS4ERR_BAD_SEQID:                 "NFS4ERR_BAD_SEQID",
	NFS4ERR_NOT_SAME:                  "NFS4ERR_NOT_SAME",
	NFS4ERR_LOCK_RANGE:                "NFS4ERR_LOCK_RANGE",
	NFS4ERR_SYMLINK:                   "NFS4ERR_SYMLINK",
	NFS4ERR_RESTOREFH:                 "NFS4ERR_RESTOREFH",
	NFS4ERR_LEASE_MOVED:               "NFS4ERR_LEASE_MOVED",
	NFS4ERR_ATTRNOTSUPP:               "NFS4ERR_ATTRNOTSUPP",
	NFS4ERR_NO_GRACE:                  "NFS4ERR_NO_GRACE",
	NFS4ERR_RECLAIM_BAD:               "NFS4ERR_RECLAIM_BAD",
	NFS4ERR_RECLAIM_CONFLICT:          "NFS4ERR_RECLAIM_CONFLICT",
	NFS4ERR_BADXDR:                    "NFS4ERR_BADXDR",
	NFS4ERR_LOCKS_HELD:                "NFS4ERR_LOCKS_HELD",
	NFS4ERR_OPENMODE:                  "NFS4ERR_OPENMODE",
	NFS4ERR_BADOWNER:                  "NFS4ERR_BADOWNER",
	NFS4ERR_BADCHAR:                   "NFS4ERR_BADCHAR",
	NFS4ERR_BADNAME:                   "NFS4ERR_BADNAME",
	NFS4ERR_BAD_RANGE:                 "NFS4ERR_BAD_RANGE",
	NFS4ERR_LOCK_NOTSUPP:              "NFS4ERR_LOCK_NOTSUPP",
	NFS4ERR_OP_ILLEGAL:                "NFS4ERR_OP_ILLEGAL",
	NFS4ERR_DEADLOCK:                  "NFS4ERR_DEADLOCK",
	NFS4ERR_FILE_OPEN:                 "NFS4ERR_FILE_OPEN",
	NFS4ERR_ADMIN_REVOKED:             "NFS4ERR_ADMIN_REVOKED",
	NFS4ERR_CB_PATH_DOWN:              "NFS4ERR_CB_PATH_DOWN",
	NFS4ERR_BADIOMODE:                 "NFS4ERR_BADIOMODE",
	NFS4ERR_BADLAYOUT:                 "NFS4ERR_BADLAYOUT",
	NFS4ERR_BAD_SESSION_DIGEST:        "NFS4ERR_BAD_SESSION_DIGEST",
	NFS4ERR_BADSESSION:                "NFS4ERR_BADSESSION",
	NFS4ERR_BADSLOT:                   "NFS4ERR_BADSLOT",
	NFS4ERR_COMPLETE_ALREADY:          "NFS4ERR_COMPLETE_ALREADY",
	NFS4ERR_CONN_NOT_BOUND_TO_SESSION: "NFS4ERR_CONN_NOT_BOUND_TO_SESSION",
	NFS4ERR_DELEG_ALREADY_WANTED:      "NFS4ERR_DELEG_ALREADY_WANTED",
	NFS4ERR_BACK_CHAN_BUSY:            "NFS4ERR_BACK_CHAN_BUSY",
	NFS4ERR_LAYOUTTRYLATER:            "NFS4ERR_LAYOUTTRYLATER",
	NFS4ERR_LAYOUTUNAVAILABLE:         "NFS4ERR_LAYOUTUNAVAILABLE",
	NFS4ERR_NOMATCHING_LAYOUT:         "NFS4ERR_NOMATCHING_LAYOUT",
	NFS4ERR_RECALLCONFLICT:            "NFS4ERR_RECALLCONFLICT",
	NFS4ERR_UNKNOWN_LAYOUTTYPE:        "NFS4ERR_UNKNOWN_LAYOUTTYPE",
	NFS4ERR_SEQ_MISORDERED:            "NFS4ERR_SEQ_MISORDERED",
	NFS4ERR_SEQUENCE_POS:              "NFS4ERR_SEQUENCE_POS",
	NFS4ERR_REQ_TOO_BIG:               "NFS4ERR_REQ_TOO_BIG",
	NFS4ERR_REP_TOO_BIG:               "NFS4ERR_REP_TOO_BIG",
	NFS4ERR_REP_TOO_BIG_TO_CACHE:      "NFS4ERR_REP_TOO_BIG_TO_CACHE",
	NFS4ERR_RETRY_UNCACHED_REP:        "NFS4ERR_RETRY_UNCACHED_REP",
	NFS4ERR_UNSAFE_COMPOUND:           "NFS4ERR_UNSAFE_COMPOUND",
	NFS4ERR_TOO_MANY_OPS:              "NFS4ERR_TOO_MANY_OPS",
	NFS4ERR_OP_NOT_IN_SESSION:         "NFS4ERR_OP_NOT_IN_SESSION",
	NFS4ERR_HASH_ALG_UNSUPP:           "NFS4ERR_HASH_ALG_UNSUPP",
	NFS4ERR_CLIENTID_BUSY:             "NFS4ERR_CLIENTID_BUSY",
	NFS4ERR_PNFS_IO_HOLE:              "NFS4ERR_PNFS_IO_HOLE",
	NFS4ERR_SEQ_FALSE_RETRY:           "NFS4ERR_SEQ_FALSE_RETRY",
	NFS4ERR_BAD_HIGH_SLOT:             "NFS4ERR_BAD_HIGH_SLOT",
	NFS4ERR_DEADSESSION:               "NFS4ERR_DEADSESSION",
	NFS4ERR_ENCR_ALG_UNSUPP:           "NFS4ERR_ENCR_ALG_UNSUPP",
	NFS4ERR_PNFS_NO_LAYOUT:            "NFS4ERR_PNFS_NO_LAYOUT",
	NFS4ERR_NOT_ONLY_OP:               "NFS4ERR_NOT_ONLY_OP",
	NFS4ERR_WRONG_CRED:                "NFS4ERR_WRONG_CRED",
	NFS4ERR_WRONG_TYPE:                "NFS4ERR_WRONG_TYPE",
	NFS4ERR_DIRDELEG_UNAVAIL:          "NFS4ERR_DIRDELEG_UNAVAIL",
	NFS4ERR_REJECT_DELEG:              "NFS4ERR_REJECT_DELEG",
	NFS4ERR_RETURNCONFLICT:            "NFS4ERR_RETURNCONFLICT",
	NFS4ERR_DELEG_REVOKED:             "NFS4ERR_DELEG_REVOKED",
	NFS4ERR_PARTNER_NOTSUPP:           "NFS4ERR_PARTNER_NOTSUPP",
	NFS4ERR_PARTNER_NO_AUTH:           "NFS4ERR_PARTNER_NO_AUTH",
	NFS4ERR_UNION_NOTSUPP:             "NFS4ERR_UNION_NOTSUPP",
	NFS4ERR_OFFLOAD_DENIED:            "NFS4ERR_OFFLOAD_DENIED",
	NFS4ERR_WRONG_LFS:                 "NFS4ERR_WRONG_LFS",
	NFS4ERR_BADLABEL:                  "NFS4ERR_BADLABEL",
	NFS4ERR_OFFLOAD_NO_REQS:           "NFS4ERR_OFFLOAD_NO_REQS",
	NFS4ERR_NOXATTR:                   "NFS4ERR_NOXATTR",
	NFS4ERR_XATTR2BIG:                 "NFS4ERR_XATTR2BIG",
}
