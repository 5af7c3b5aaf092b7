// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// authority is where the kubelet puts that of the API server.
const authority = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// InCluster says where the API server is, as the environment of each pod does. It needs no token,
// so that the console's pod can be without one (console-1).
func InCluster(getenv func(string) string) (*rest.Config, error) { return inCluster(getenv, authority) }

func inCluster(getenv func(string) string, authority string) (*rest.Config, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("find the cluster: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is empty: " +
			"run this in a pod, or give --kubeconfig")
	}
	if _, err := certutil.NewPool(authority); err != nil {
		return nil, fmt.Errorf("find the cluster: read the authority of its API server: %w: mount the ConfigMap kube-root-ca.crt there, "+
			"or give --kubeconfig", err)
	}
	return &rest.Config{Host: "https://" + net.JoinHostPort(host, port), TLSClientConfig: rest.TLSClientConfig{CAFile: authority}}, nil
}

// scheme has the kinds that pages are about.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // they are constants
		}
	}
	return s
}

// mapper knows where the kinds are, so that nobody has to be asked.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion, authenticationv1.SchemeGroupVersion,
		authorizationv1.SchemeGroupVersion})
	for _, kind := range []string{"Site", "GeoVolumeContent", "StorageOffer", "StorageRequest", "StorageAgreement", "StorageUsage"} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return m
}

// connect is the API server for who has a token (console-1): for objects, and for rows of them.
func (c *Console) connect(token string) (client.Client, rest.Interface, error) {
	cfg := rest.AnonymousClientConfig(c.cfg.Cluster)
	cfg.BearerToken, cfg.QPS, cfg.UserAgent, cfg.Timeout = token, -1, "weir-console", 30*time.Second
	s := scheme()
	api, err := client.New(cfg, client.Options{Scheme: s, Mapper: mapper()})
	if err != nil {
		return nil, nil, err
	}
	cfg.APIPath, cfg.GroupVersion = "/apis", &v1alpha1.GroupVersion
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	rows, err := rest.RESTClientFor(cfg)
	return api, rows, err
}

func unauthorized(err error) bool {
	f := (*failed)(nil)
	return apierrors.IsUnauthorized(err) || errors.As(err, &f) && f.code == http.StatusUnauthorized
}

// explain is an error of the API server for people.
func explain(err error) (code int, what string) {
	switch {
	case apierrors.IsForbidden(err):
		return http.StatusForbidden, "You may not do that: " + err.Error() + ". Whoever administers this cluster can give you the right " +
			"(ClusterRole weir-exchange)."
	case apierrors.IsNotFound(err):
		return http.StatusNotFound, "There is no such thing here: " + err.Error() + "."
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return http.StatusBadRequest, err.Error()
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return http.StatusConflict, "Somebody else was faster: " + err.Error() + ". Look again."
	}
	if f := (*failed)(nil); errors.As(err, &f) {
		return f.code, f.what
	}
	return http.StatusBadGateway, "The API server does not answer as it should: " + err.Error() + "."
}

// asked is an answer of the API server, which counts for a while.
type asked struct {
	may bool
	at  time.Time
}

// askedFor is how long an answer counts.
const askedFor = 30 * time.Second

// may reports whether who is signed in may do something with a kind (console-5).
func (v *visit) may(verb, resource string) bool {
	key, now := verb+" "+resource, v.c.cfg.Now()
	v.s.mu.Lock()
	a, ok := v.s.may[key]
	v.s.mu.Unlock()
	if ok && now.Sub(a.at) < askedFor {
		return a.may
	}
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.Group, Verb: verb, Resource: resource}}}
	if err := v.s.api.Create(v.Context(), r); err != nil {
		return false
	}
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.s.may[key] = asked{r.Status.Allowed, now}
	return r.Status.Allowed
}

// home is the site whose cluster this is.
type home struct {
	Site, Organization, Federation string
	at                             time.Time // when it was found
}

// home looks for the local site, and remembers it for a while.
func (v *visit) home() home {
	now := v.c.cfg.Now()
	v.s.mu.Lock()
	h := v.s.home
	v.s.mu.Unlock()
	if h.Site != "" && now.Sub(h.at) < askedFor {
		return h
	}
	var list v1alpha1.SiteList
	if v.s.api.List(v.Context(), &list) != nil {
		return home{}
	}
	h = home{}
	for i := range list.Items {
		if s := &list.Items[i]; s.Status.Local {
			h = home{s.Name, s.Spec.Organization, s.Spec.Federation, now}
		}
	}
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	v.s.home = h
	return h
}

// list reads all objects of a kind. Who may not see them gets none, and is told so.
func list(ctx context.Context, api client.Client, into client.ObjectList) (forbidden string, err error) {
	err = api.List(ctx, into)
	if apierrors.IsForbidden(err) {
		return "You may not see them: " + err.Error() + ".", nil
	}
	return "", err
}
