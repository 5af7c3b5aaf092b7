// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of what is in the Secrets, besides tls.crt and tls.key.
const (
	caCert  = "ca.crt"
	caKey   = "ca.key"
	trusted = "trusted.crt"
)

// The label of Secrets that Make made. Renewal changes no others.
const (
	managedBy = "app.kubernetes.io/managed-by"
	bySetup   = "weir-setup"
)

// Secrets are those of one namespace. Its methods may be called at the same time.
type Secrets struct {
	// Reader asks the API server itself: the right to read is for single Secrets, by name, and a
	// cache would list them.
	Reader client.Reader
	Client client.Client
	// Namespace is where they are.
	Namespace string
	// Tell hears of each Secret that was written; it takes what fmt.Printf does.
	Tell func(format string, a ...any)
}

// Get reads one; nil when it is not there.
func (s *Secrets) Get(ctx context.Context, name string) (*corev1.Secret, error) {
	var found corev1.Secret
	err := s.Reader.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read secret %s/%s: %w", s.Namespace, name, err)
	}
	return &found, nil
}

// Make creates one. If another process is faster, its Secret counts and this one gets an error: it
// should look again.
func (s *Secrets) Make(ctx context.Context, name string, data map[string][]byte) error {
	err := s.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: map[string]string{managedBy: bySetup}}, Data: data,
	})
	if err != nil {
		return fmt.Errorf("make secret %s/%s: %w", s.Namespace, name, err)
	}
	s.Tell("secret %s is made\n", name)
	return nil
}

// replace writes other data into one that was read. It fails if the Secret has changed since.
func (s *Secrets) replace(ctx context.Context, old *corev1.Secret, data map[string][]byte) error {
	changed := old.DeepCopy()
	changed.Data = data
	if err := s.Client.Update(ctx, changed); err != nil {
		return fmt.Errorf("renew secret %s/%s: %w", s.Namespace, old.Name, err)
	}
	s.Tell("secret %s is renewed\n", old.Name)
	return nil
}
