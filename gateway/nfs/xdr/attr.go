// SPDX-License-Identifier: Apache-2.0

package xdr

// The attributes of files, RFC 8881 sections 5.8 to 5.14, RFC 7862 section 12, RFC
// 8275 and RFC 8276.
const (
	FATTR4_SUPPORTED_ATTRS    uint32 = 0
	FATTR4_TYPE               uint32 = 1
	FATTR4_FH_EXPIRE_TYPE     uint32 = 2
	FATTR4_CHANGE             uint32 = 3
	FATTR4_SIZE               uint32 = 4
	FATTR4_LINK_SUPPORT       uint32 = 5
	FATTR4_SYMLINK_SUPPORT    uint32 = 6
	FATTR4_NAMED_ATTR         uint32 = 7
	FATTR4_FSID               uint32 = 8
	FATTR4_UNIQUE_HANDLES     uint32 = 9
	FATTR4_LEASE_TIME         uint32 = 10
	FATTR4_RDATTR_ERROR       uint32 = 11
	FATTR4_ACL                uint32 = 12
	FATTR4_ACLSUPPORT         uint32 = 13
	FATTR4_ARCHIVE            uint32 = 14
	FATTR4_CANSETTIME         uint32 = 15
	FATTR4_CASE_INSENSITIVE   uint32 = 16
	FATTR4_CASE_PRESERVING    uint32 = 17
	FATTR4_CHOWN_RESTRICTED   uint32 = 18
	FATTR4_FILEHANDLE         uint32 = 19
	FATTR4_FILEID             uint32 = 20
	FATTR4_FILES_AVAIL        uint32 = 21
	FATTR4_FILES_FREE         uint32 = 22
	FATTR4_FILES_TOTAL        uint32 = 23
	FATTR4_FS_LOCATIONS       uint32 = 24
	FATTR4_HIDDEN             uint32 = 25
	FATTR4_HOMOGENEOUS        uint32 = 26
	FATTR4_MAXFILESIZE        uint32 = 27
	FATTR4_MAXLINK            uint32 = 28
	FATTR4_MAXNAME            uint32 = 29
	FATTR4_MAXREAD            uint32 = 30
	FATTR4_MAXWRITE           uint32 = 31
	FATTR4_MIMETYPE           uint32 = 32
	FATTR4_MODE               uint32 = 33
	FATTR4_NO_TRUNC           uint32 = 34
	FATTR4_NUMLINKS           uint32 = 35
	FATTR4_OWNER              uint32 = 36
	FATTR4_OWNER_GROUP        uint32 = 37
	FATTR4_QUOTA_AVAIL_HARD   uint32 = 38
	FATTR4_QUOTA_AVAIL_SOFT   uint32 = 39
	FATTR4_QUOTA_USED         uint32 = 40
	FATTR4_RAWDEV             uint32 = 41
	FATTR4_SPACE_AVAIL        uint32 = 42
	FATTR4_SPACE_FREE         uint32 = 43
	FATTR4_SPACE_TOTAL        uint32 = 44
	FATTR4_SPACE_USED         uint32 = 45
	FATTR4_SYSTEM             uint32 = 46
	FATTR4_TIME_ACCESS        uint32 = 47
	FATTR4_TIME_ACCESS_SET    uint32 = 48
	FATTR4_TIME_BACKUP        uint32 = 49
	FATTR4_TIME_CREATE        uint32 = 50
	FATTR4_TIME_DELTA         uint32 = 51
	FATTR4_TIME_METADATA      uint32 = 52
	FATTR4_TIME_MODIFY        uint32 = 53
	FATTR4_TIME_MODIFY_SET    uint32 = 54
	FATTR4_MOUNTED_ON_FILEID  uint32 = 55
	FATTR4_DIR_NOTIF_DELAY    uint32 = 56
	FATTR4_DIRENT_NOTIF_DELAY uint32 = 57
	FATTR4_DACL               uint32 = 58
	FATTR4_SACL               uint32 = 59
	FATTR4_CHANGE_POLICY      uint32 = 60
	FATTR4_FS_STATUS          uint32 = 61
	FATTR4_FS_LAYOUT_TYPES    uint32 = 62
	FATTR4_LAYOUT_HINT        uint32 = 63
	FATTR4_LAYOUT_TYPES       uint32 = 64
	FATTR4_LAYOUT_BLKSIZE     uint32 = 65
	FATTR4_LAYOUT_ALIGNMENT   uint32 = 66
	FATTR4_FS_LOCATIONS_INFO  uint32 = 67
	FATTR4_MDSTHRESHOLD       uint32 = 68
	FATTR4_RETENTION_GET      uint32 = 69
	FATTR4_RETENTION_SET      uint32 = 70
	FATTR4_RETENTEVT_GET      uint32 = 71
	FATTR4_RETENTEVT_SET      uint32 = 72
	FATTR4_RETENTION_HOLD     uint32 = 73
	FATTR4_MODE_SET_MASKED    uint32 = 74
	FATTR4_SUPPATTR_EXCLCREAT uint32 = 75
	FATTR4_FS_CHARSET_CAP     uint32 = 76
	FATTR4_CLONE_BLKSIZE      uint32 = 77
	FATTR4_SPACE_FREED        uint32 = 78
	FATTR4_CHANGE_ATTR_TYPE   uint32 = 79
	FATTR4_SEC_LABEL          uint32 = 80
	FATTR4_MODE_UMASK         uint32 = 81
	FATTR4_XATTR_SUPPORT      uint32 = 82

	// AttrLimit is above every attribute.
	AttrLimit uint32 = 83
)
