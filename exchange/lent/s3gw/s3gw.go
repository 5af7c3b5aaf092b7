// SPDX-License-Identifier: Apache-2.0

// Package s3gw speaks S3 for a lent store: versitygw as a library, with nothing below it but
// immutable objects. What else S3 has is not offered.
package s3gw

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

// Outcomes of Objects; compare with errors.Is. The others are internal errors.
var (
	ErrNotExist = errors.New("no such object")
	ErrExists   = errors.New("an object of that name is there, and is never replaced")
	ErrRefused  = errors.New("refused")
	ErrNoRoom   = errors.New("no room")
)

// Object is what is known of one.
type Object struct {
	Name     string
	Size     int64
	Modified time.Time
}

// Objects are what S3 is spoken for. access is the access key whose secret the asker has. Methods
// may be called from many goroutines.
type Objects interface {
	// Put creates an object of size bytes. Unless it returns nil, nothing is there.
	Put(ctx context.Context, access, bucket, name string, size int64, body io.Reader) error
	// Open reads the bytes [off, off+n) of an object. The caller closes it.
	Open(ctx context.Context, access, bucket, name string, off, n int64) (io.ReadCloser, error)
	Stat(ctx context.Context, access, bucket, name string) (Object, error)
	// List returns up to most objects whose names begin with prefix and come after one, in order.
	List(ctx context.Context, access, bucket, prefix, after string, most int) ([]Object, error)
	Delete(ctx context.Context, access, bucket, name string) error
}

// Config is what a gateway needs.
type Config struct {
	// Socket is the path of the UNIX socket at which it listens.
	Socket string
	// Secret returns the secret of an access key; an error: there is none.
	Secret  func(access string) (string, error)
	Objects Objects
	// Told hears of errors of Objects that are nobody's fault.
	Told func(op, name string, err error)
}

// Bounds of one gateway.
const (
	mostConnections = 1024
	mostRequests    = 512
)

// Run speaks S3 until ctx ends. One may run in a process: the library has variables of its own.
func Run(ctx context.Context, c Config) error {
	var root [32]byte
	if _, err := rand.Read(root[:]); err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, &objects{c: c}, &embedgw.Config{
		RootUserAccess: "nobody-" + hex.EncodeToString(root[:8]), RootUserSecret: hex.EncodeToString(root[8:]), // it is used by nobody
		Ports: []string{c.Socket}, SocketPerm: "0600", MaxConnections: mostConnections, MaxRequests: mostRequests,
		MultipartMaxParts: 1, KeepAlive: true, DisableACLs: true, Quiet: true, IAMService: secrets(c.Secret)})
}

// secrets are accounts that are in no list.
type secrets func(access string) (string, error)

// GetUserAccount implements auth.IAMService.
func (s secrets) GetUserAccount(access string) (auth.Account, error) {
	access = strings.Clone(access)
	secret, err := s(access)
	if err != nil {
		return auth.Account{}, auth.ErrNoSuchUser
	}
	return auth.Account{Access: access, Secret: secret, Role: auth.RoleUser}, nil
}

// ResolveAccounts implements auth.IAMService.
func (s secrets) ResolveAccounts(all []string) (missing []string, err error) { return all, nil }

var errNoAccounts = s3err.GetAPIError(s3err.ErrAdminMethodNotSupported)

// CreateAccount implements auth.IAMService.
func (secrets) CreateAccount(auth.Account) error { return errNoAccounts }

// UpdateUserAccount implements auth.IAMService.
func (secrets) UpdateUserAccount(string, auth.MutableProps) error { return errNoAccounts }

// DeleteUserAccount implements auth.IAMService.
func (secrets) DeleteUserAccount(string) error { return errNoAccounts }

// ListUserAccounts implements auth.IAMService.
func (secrets) ListUserAccounts() ([]auth.Account, error) { return nil, errNoAccounts }

// Shutdown implements auth.IAMService.
func (secrets) Shutdown() error { return nil }

// objects is a backend.Backend.
type objects struct {
	backend.BackendUnsupported
	c Config
}

// String implements backend.Backend.
func (o *objects) String() string { return "lent room" }

// access is the access key of a request, whose signature was good.
func access(ctx context.Context) string {
	a, _ := ctx.Value("account").(auth.Account)
	return strings.Clone(a.Access)
}

// answer makes an error of S3 of one of Objects.
func (o *objects) answer(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotExist):
		return s3err.GetAPIError(s3err.ErrNoSuchKey)
	case errors.Is(err, ErrExists):
		return s3err.APIError{Code: "PreconditionFailed", Description: ErrExists.Error(), HTTPStatusCode: http.StatusPreconditionFailed}
	case errors.Is(err, ErrRefused):
		return s3err.APIError{Code: "AccessDenied", Description: err.Error(), HTTPStatusCode: http.StatusForbidden}
	case errors.Is(err, ErrNoRoom):
		return s3err.APIError{Code: "QuotaExceeded", Description: err.Error(), HTTPStatusCode: http.StatusForbidden}
	}
	o.c.Told(op, name, err)
	return s3err.APIError{Code: "ServiceUnavailable", Description: "the store's disk does not answer as it should: try again later",
		HTTPStatusCode: http.StatusServiceUnavailable}
}

// of copies a string of a request: the library writes the next request over it.
func of(s *string) string {
	if s == nil {
		return ""
	}
	return strings.Clone(*s)
}

// GetBucketAcl implements backend.Backend: who has a capability for a bucket is its owner. What he
// may do there, Objects say.
func (o *objects) GetBucketAcl(ctx context.Context, _ *s3.GetBucketAclInput) ([]byte, error) {
	return json.Marshal(auth.ACL{Owner: access(ctx)})
}

// GetBucketPolicy implements backend.Backend: there is none.
func (o *objects) GetBucketPolicy(context.Context, string) ([]byte, error) {
	return nil, s3err.GetAPIError(s3err.ErrNoSuchBucketPolicy)
}

// GetBucketCors implements backend.Backend: there is none.
func (o *objects) GetBucketCors(context.Context, string) ([]byte, error) {
	return nil, s3err.GetAPIError(s3err.ErrNoSuchCORSConfiguration)
}

// GetObjectLockConfiguration implements backend.Backend: there is none. Objects are immutable.
func (o *objects) GetObjectLockConfiguration(context.Context, string) ([]byte, error) {
	return nil, s3err.GetAPIError(s3err.ErrObjectLockConfigurationNotFound)
}

// HeadBucket implements backend.Backend.
func (o *objects) HeadBucket(ctx context.Context, in *s3.HeadBucketInput) (*s3.HeadBucketOutput, error) {
	_, err := o.c.Objects.List(ctx, access(ctx), of(in.Bucket), "", "", 0)
	return &s3.HeadBucketOutput{}, o.answer("head", of(in.Bucket), err)
}

// PutObject implements backend.Backend.
func (o *objects) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	bucket, name := of(in.Bucket), of(in.Key)
	if in.ContentLength == nil {
		return s3response.PutObjectOutput{}, s3err.GetAPIError(s3err.ErrMissingContentLength)
	}
	err := o.c.Objects.Put(ctx, access(ctx), bucket, name, *in.ContentLength, in.Body)
	if s := (s3err.S3Error)(nil); errors.As(err, &s) { // what the asker sent is not what he signed
		return s3response.PutObjectOutput{}, err
	}
	if err != nil {
		return s3response.PutObjectOutput{}, o.answer("put", bucket+"/"+name, err)
	}
	return s3response.PutObjectOutput{ETag: tag(name), Size: in.ContentLength}, nil
}

// tag is an object's ETag: it is never another object.
func tag(name string) string {
	return `"` + hex.EncodeToString([]byte(name))[:min(32, 2*len(name))] + `"`
}

// HeadObject implements backend.Backend.
func (o *objects) HeadObject(ctx context.Context, in *s3.HeadObjectInput) (*s3.HeadObjectOutput, error) {
	is, err := o.c.Objects.Stat(ctx, access(ctx), of(in.Bucket), of(in.Key))
	if err != nil {
		return nil, o.answer("head", of(in.Bucket)+"/"+of(in.Key), err)
	}
	etag, kind := tag(is.Name), "application/octet-stream"
	return &s3.HeadObjectOutput{ContentLength: &is.Size, LastModified: &is.Modified, ETag: &etag, ContentType: &kind}, nil
}

// GetObject implements backend.Backend.
func (o *objects) GetObject(ctx context.Context, in *s3.GetObjectInput) (*s3.GetObjectOutput, error) {
	bucket, name := of(in.Bucket), of(in.Key)
	is, err := o.c.Objects.Stat(ctx, access(ctx), bucket, name)
	if err != nil {
		return nil, o.answer("get", bucket+"/"+name, err)
	}
	off, n, ranged, err := backend.ParseObjectRange(is.Size, of(in.Range))
	if err != nil {
		return nil, err
	}
	body, err := o.c.Objects.Open(ctx, access(ctx), bucket, name, off, n)
	if err != nil {
		return nil, o.answer("get", bucket+"/"+name, err)
	}
	etag, kind, units := tag(is.Name), "application/octet-stream", "bytes"
	out := &s3.GetObjectOutput{Body: body, ContentLength: &n, LastModified: &is.Modified, ETag: &etag, ContentType: &kind,
		AcceptRanges: &units}
	if ranged {
		at := fmt.Sprintf("bytes %d-%d/%d", off, off+n-1, is.Size)
		out.ContentRange = &at
	}
	return out, nil
}

// DeleteObject implements backend.Backend.
func (o *objects) DeleteObject(ctx context.Context, in *s3.DeleteObjectInput) (*s3.DeleteObjectOutput, error) {
	err := o.c.Objects.Delete(ctx, access(ctx), of(in.Bucket), of(in.Key))
	if errors.Is(err, ErrNotExist) {
		err = nil
	}
	return &s3.DeleteObjectOutput{}, o.answer("delete", of(in.Bucket)+"/"+of(in.Key), err)
}

// mostListed is how many objects one answer has.
const mostListed = 1000

// ListObjectsV2 implements backend.Backend. Delimiters are not offered.
func (o *objects) ListObjectsV2(ctx context.Context, in *s3.ListObjectsV2Input) (s3response.ListObjectsV2Result, error) {
	if of(in.Delimiter) != "" {
		return s3response.ListObjectsV2Result{}, s3err.GetAPIError(s3err.ErrNotImplemented)
	}
	most := mostListed
	if in.MaxKeys != nil && *in.MaxKeys >= 0 && int(*in.MaxKeys) < most {
		most = int(*in.MaxKeys)
	}
	after := max(of(in.StartAfter), of(in.ContinuationToken))
	all, err := o.c.Objects.List(ctx, access(ctx), of(in.Bucket), of(in.Prefix), after, most+1)
	if err != nil {
		return s3response.ListObjectsV2Result{}, o.answer("list", of(in.Bucket), err)
	}
	more := len(all) > most
	all = all[:min(most, len(all))]
	count, limit := int32(len(all)), int32(most)
	out := s3response.ListObjectsV2Result{Name: in.Bucket, Prefix: in.Prefix, StartAfter: in.StartAfter,
		ContinuationToken: in.ContinuationToken, KeyCount: &count, MaxKeys: &limit, IsTruncated: &more}
	for _, is := range all {
		etag, name, size, at := tag(is.Name), is.Name, is.Size, is.Modified
		out.Contents = append(out.Contents, s3response.Object{ETag: &etag, Key: &name, Size: &size, LastModified: &at})
	}
	if more && len(all) > 0 {
		last := strings.Clone(all[len(all)-1].Name)
		out.NextContinuationToken = &last
	}
	return out, nil
}
