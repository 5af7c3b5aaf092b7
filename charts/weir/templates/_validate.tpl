{{/* weir.validate: what values.schema.json cannot say. setup/job.yaml calls it once. It names all
     that is wrong at once. */}}
{{- define "weir.validate" -}}
{{- $v := .Values }}{{ $p := list }}{{ $mode := include "weir.mode" . }}
{{- if not $v.federation }}{{ $p = append $p "federation: missing: name the federation, a DNS label such as demo" }}{{ end }}
{{- if not $v.organization }}{{ $p = append $p "organization: missing: name the institution that runs this site" }}{{ end }}
{{- if not $v.site.name }}{{ $p = append $p "site.name: missing: name this site, a DNS label such as ams" }}{{ end }}
{{- if and $v.registry.endpoints $v.bundled.registry.enabled }}
{{- $p = append $p "bundled.registry.enabled: registry.endpoints is there too: remove one of them; a federation has one registry" }}
{{- else if not (or $v.registry.endpoints $v.bundled.registry.enabled) }}
{{- $p = append $p "registry.endpoints: missing: write the URLs of the registry's members, such as [https://10.0.1.2:2379]; or, for a trial, bundled.registry.enabled=true" }}
{{- end }}
{{- if and $v.bundled.registry.enabled (ne $mode "generated") }}
{{- $p = append $p (printf "certificates.mode: %s: the bundled registry is for trials, and its certificate is generated: write generated, or use a registry outside" $mode) }}
{{- end }}
{{- if and $v.bundled.registry.enabled (ne $v.bundled.registry.expose "ClusterIP") (not $v.bundled.registry.hosts) }}
{{- $p = append $p (printf "bundled.registry.hosts: missing: with expose %s, list the addresses at which other sites reach the registry, for its certificate" $v.bundled.registry.expose) }}
{{- end }}

{{- $p = concat $p (include "weir.imageProblems" . | fromJsonArray) }}

{{- $g := $v.gateway }}
{{- if not $g.address }}
{{- if has $g.expose (list "NodePort" "LoadBalancer") }}
{{- $p = append $p (printf "gateway.address: missing: with expose %s, write the address at which other sites reach the gateway; or expose=ClusterIP for a federation of one site" $g.expose) }}
{{- else if and (eq $g.expose "HostNetwork") (has $mode (list "generated" "certManager")) }}
{{- $p = append $p "gateway.address: missing: write the address of the node that gateway.nodeSelector chooses: it has to be in the gateway's certificate; or expose=ClusterIP for a federation of one site" }}
{{- else if and (eq $g.expose "ClusterIP") (ne $mode "generated") (not $g.service.clusterIP) }}
{{- $p = append $p (printf "gateway.service.clusterIP: missing: with expose ClusterIP and certificates.mode %s, choose the Service's address: it has to be in the gateway's certificate" $mode) }}
{{- end }}
{{- end }}
{{- if and $g.pool.hostPath (not $g.nodeSelector) }}
{{- $p = append $p "gateway.nodeSelector: missing: with gateway.pool.hostPath, write which node has the folder, such as kubernetes.io/hostname: NAME; on another node the pool would be empty" }}
{{- end }}
{{- if and $v.siteKey.kms.hostPath (not $v.siteKey.kms.socket) }}
{{- $p = append $p "siteKey.kms.socket: missing: with siteKey.kms.hostPath, write the path of the KMS plugin's socket; or remove hostPath" }}
{{- end }}
{{- if and $v.siteKey.kms.socket $v.siteKey.kms.hostPath (not $g.nodeSelector) }}
{{- $p = append $p "gateway.nodeSelector: missing: with siteKey.kms.hostPath, write which node has the folder, such as kubernetes.io/hostname: NAME; on another node the site's key would not be there" }}
{{- end }}
{{- $z := $g.pool.zfs }}
{{- if and $z.dataset (not $g.nodeSelector) }}
{{- $p = append $p "gateway.nodeSelector: missing: with gateway.pool.zfs, write which node has the ZFS pool, such as kubernetes.io/hostname: NAME" }}
{{- end }}
{{- if and $z.dataset $g.pool.hostPath }}
{{- $p = append $p (printf "gateway.pool.hostPath: %s: gateway.pool.zfs.dataset is there too, which is mounted at /var/lib/weir/pool of the node: remove one of them" $g.pool.hostPath) }}
{{- end }}
{{- if and (not $z.dataset) (or $z.devices.data $z.devices.log $z.devices.cache) }}
{{- $p = append $p "gateway.pool.zfs.dataset: missing: name the dataset in the ZFS pool of these devices, such as tank/weir" }}
{{- end }}
{{- if and (not $z.devices.data) (or $z.devices.log $z.devices.cache) }}
{{- $p = append $p "gateway.pool.zfs.devices.data: missing: name the devices that have the data; or remove log and cache, if the ZFS pool is there" }}
{{- end }}

{{- $names := dict "main" true }}
{{- range $i, $one := $g.pools }}
{{- $at := printf "gateway.pools[%d]" $i }}
{{- if hasKey $names $one.name }}
{{- $p = append $p (printf "%s.name: %s: another pool has that name: give each a name of its own; the first, gateway.pool, is main" $at $one.name) }}
{{- end }}
{{- $_ := set $names $one.name true }}
{{- $dataset := dig "zfs" "dataset" "" $one }}
{{- $claim := dig "claim" "size" "" $one }}
{{- if ne 1 (len (compact (list $one.hostPath $dataset $claim))) }}
{{- $p = append $p (printf "%s: write one of hostPath, zfs.dataset and claim.size: it says what the pool is" $at) }}
{{- end }}
{{- if and (or $one.hostPath $dataset) (not $g.nodeSelector) }}
{{- $p = append $p (printf "gateway.nodeSelector: missing: with %s on a node, write which one, such as kubernetes.io/hostname: NAME" $at) }}
{{- end }}
{{- $devices := dig "zfs" "devices" dict $one }}
{{- if and (not $dataset) $devices }}
{{- $p = append $p (printf "%s.zfs.dataset: missing: name the dataset in the ZFS pool of these devices, such as fast/weir" $at) }}
{{- end }}
{{- if and (not $devices.data) (or $devices.log $devices.cache) }}
{{- $p = append $p (printf "%s.zfs.devices.data: missing: name the devices that have the data; or remove log and cache, if the ZFS pool is there" $at) }}
{{- end }}
{{- if and $dataset (eq $dataset $z.dataset) }}
{{- $p = append $p (printf "%s.zfs.dataset: %s: it is the main pool's: give each pool a dataset of its own" $at $dataset) }}
{{- end }}
{{- end }}

{{- $s := $v.store }}
{{- if and $s.endpoint $v.bundled.store.enabled }}
{{- $p = append $p "bundled.store.enabled: store.endpoint is there too: remove one of them; a site has one store" }}
{{- end }}
{{- if include "weir.hasStore" . }}
{{- if not $s.bucket }}{{ $p = append $p "store.bucket: missing: name the bucket; it is made if it does not exist" }}{{ end }}
{{- if not $s.accessKey }}{{ $p = append $p "store.accessKey: missing: write the account's access key" }}{{ end }}
{{- if and $s.secretKey $s.existingSecret }}{{ $p = append $p "store.existingSecret: store.secretKey is there too: remove one of them" }}{{ end }}
{{- if not (or $s.secretKey $s.existingSecret) }}{{ $p = append $p "store.secretKey: missing: write the account's secret key, or name a Secret with it in store.existingSecret" }}{{ end }}
{{- else if or $s.bucket $s.accessKey $s.secretKey $s.existingSecret }}
{{- $p = append $p "store.endpoint: missing: write the URL of the S3 server, or bundled.store.enabled=true for a trial; or remove the rest of store" }}
{{- end }}

{{- $l := $v.lending }}
{{- if $l.enabled }}
{{- if not $l.address }}{{ $p = append $p "lending.address: missing: write the address at which guests' gateways reach the store" }}{{ end }}
{{- if not (or $l.room.claim.size (include "weir.hasStore" .)) }}
{{- $p = append $p "lending.room.claim.size: missing: write how much room there is; or give the site a store (store.endpoint), in which the room then is" }}
{{- end }}
{{- if not $l.claim.size }}{{ $p = append $p "lending.claim.size: missing: write how much room there is for what the store counts, such as 1Gi" }}{{ end }}
{{- end }}

{{- $c := $v.console }}
{{- if $c.enabled }}
{{- $host := `([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?` }}
{{- if not $c.url }}
{{- $p = append $p "console.url: missing: write where people reach the console, such as https://weir.example.org" }}
{{- else if not (regexMatch (printf "^https://%s/?$" $host) $c.url) }}
{{- $p = append $p (printf "console.url: %s: write https://, a name and perhaps a port, and no path, such as https://weir.example.org: people's tokens go there" $c.url) }}
{{- else if and $c.ingress.enabled (regexMatch "^(\\[.*\\]|[0-9.]+)$" (include "weir.consoleHost" .)) }}
{{- $p = append $p (printf "console.ingress.host: %q: an Ingress wants a name, and %s is an address: write a name here, or in console.url" $c.ingress.host (include "weir.consoleHost" .)) }}
{{- end }}
{{- if and (ne $c.expose "ClusterIP") (not $c.tls.secret) }}
{{- $p = append $p (printf "console.tls.secret: missing: with expose %s, people's tokens would go there in the clear: name a Secret of type kubernetes.io/tls; or expose=ClusterIP, behind an ingress that speaks HTTPS" $c.expose) }}
{{- end }}
{{- $o := $c.oidc }}
{{- if $o.issuer }}
{{- if not (regexMatch (printf "^https://%s(/[^?# ]*)?$" $host) $o.issuer) }}
{{- $p = append $p (printf "console.oidc.issuer: %s: write a URL that begins with https://, such as https://login.example.org" $o.issuer) }}
{{- end }}
{{- if not $o.client }}
{{- $p = append $p (printf "console.oidc.client: missing: with console.oidc.issuer %s, write the console's name at the issuer" $o.issuer) }}
{{- end }}
{{- else }}
{{- range $key := list "client" "secret" "ca" }}
{{- if index $o $key }}
{{- $p = append $p (printf "console.oidc.issuer: missing: with console.oidc.%s %s, write the issuer's URL, such as https://login.example.org; or remove that one, and people sign in with a token" $key (index $o $key)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- if eq $v.certificates.mode "auto" }}
{{- $have := lookup "v1" "Secret" .Release.Namespace $v.certificates.secrets.gateway | default dict }}
{{- if eq (dig "metadata" "labels" "app.kubernetes.io/managed-by" "" $have) "Helm" }}
{{- $p = append $p (printf "certificates.mode: auto: Secret %s has a certificate that was handed over: give its file again, by -f certificates.yaml; or write a mode, and delete the Secret for new ones" $v.certificates.secrets.gateway) }}
{{- end }}
{{- end }}
{{- if eq $mode "provided" }}
{{- if not $v.certificates.provided.ca }}{{ $p = append $p "certificates.provided.ca: missing: give the file that `weir pki bundle` wrote, by -f certificates.yaml; or the federation's ca.crt, by --set-file certificates.provided.ca=ca.crt" }}{{ end }}
{{- $for := $v.certificates.provided.issuedFor }}
{{- range $f := list (list "federation" "federation" $v.federation) (list "organization" "organization" $v.organization) (list "site" "site.name" $v.site.name) (list "gateway" "gateway.name" (include "weir.gatewayName" .)) }}
{{- $is := index $for (index $f 0) }}
{{- if and $is (ne $is (index $f 2)) }}
{{- $p = append $p (printf "certificates.provided.issuedFor.%s: %s: %s is %s: give this site's certificates, or correct one of the two" (index $f 0) $is (index $f 1) (index $f 2)) }}
{{- end }}
{{- end }}
{{- range $c := include "weir.certificates" . | fromJsonArray }}
{{- $pair := index $v.certificates.provided $c.key }}
{{- if not (and $pair.cert $pair.key) }}
{{- $p = append $p (printf "certificates.provided.%s: cert or key missing: give both, by --set-file certificates.provided.%s.cert=%s.crt,certificates.provided.%s.key=%s.key" $c.key $c.key $c.name $c.key $c.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.metrics.enabled $v.metrics.serviceMonitors.create $v.networkPolicies.enabled (not $v.networkPolicies.metricsFrom) }}
{{- $p = append $p "networkPolicies.metricsFrom: missing: with metrics.serviceMonitors.create, say where Prometheus is, or its requests are blocked: write such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}], or [{namespaceSelector: {}}] for any pod; or networkPolicies.enabled=false" }}
{{- end }}
{{- if and $v.snapshots.groups.enabled (not $v.snapshots.enabled) }}
{{- $p = append $p "snapshots.groups.enabled: snapshots.enabled is false: nothing would make groups of snapshots: write true for both, or false for both" }}
{{- end }}
{{- if and $v.snapshots.controller.enabled (not $v.snapshots.enabled) }}
{{- $p = append $p "snapshots.controller.enabled: snapshots.enabled is false: nothing would make snapshots of Weir's volumes: write true for both, or false for both" }}
{{- end }}
{{- /* Only a cluster can tell which kinds it has: without one, lookup finds no namespace. */}}
{{- if and $v.snapshots.enabled (lookup "v1" "Namespace" "" "kube-system") }}
{{- if not (.Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1/VolumeSnapshotClass") }}
{{- $p = append $p "snapshots.enabled: the cluster has no kinds of snapshot.storage.k8s.io/v1: install them first, once for all drivers, from client/config/crd of github.com/kubernetes-csi/external-snapshotter; and its snapshot controller, or write snapshots.controller.enabled=true" }}
{{- else if and $v.snapshots.groups.enabled (not (.Capabilities.APIVersions.Has "groupsnapshot.storage.k8s.io/v1/VolumeGroupSnapshotClass")) }}
{{- $p = append $p "snapshots.groups.enabled: the cluster has no kinds of groupsnapshot.storage.k8s.io/v1: install them first, as those of snapshot.storage.k8s.io; or write false" }}
{{- end }}
{{- end }}
{{- if and $v.storageClass.create (not $v.policy.create) (not $v.storageClass.policy) }}
{{- $p = append $p "storageClass.policy: missing: with policy.create=false, name the VolumePolicy of the StorageClass" }}
{{- end }}

{{- if and $v.storageClass.create $v.storageClass.isDefault }}
{{- $claims := list }}
{{- if include "weir.poolClaim" . }}{{ $claims = append $claims (list "gateway.pool.claim.storageClassName" $g.pool.claim.storageClassName) }}{{ end }}
{{- range $i, $one := $g.pools }}
{{- if dig "claim" "size" "" $one }}{{ $claims = append $claims (list (printf "gateway.pools[%d].claim.storageClassName" $i) (dig "claim" "storageClassName" "" $one)) }}{{ end }}
{{- end }}
{{- if and $v.siteKey.kms.socket (not $v.siteKey.kms.hostPath) }}{{ $claims = append $claims (list "siteKey.kms.claim.storageClassName" $v.siteKey.kms.claim.storageClassName) }}{{ end }}
{{- if $v.bundled.registry.enabled }}{{ $claims = append $claims (list "bundled.registry.storageClassName" $v.bundled.registry.storageClassName) }}{{ end }}
{{- if $v.bundled.store.enabled }}{{ $claims = append $claims (list "bundled.store.storageClassName" $v.bundled.store.storageClassName) }}{{ end }}
{{- range $c := $claims }}
{{- if or (not (index $c 1)) (eq (index $c 1) $v.storageClass.name) }}
{{- $p = append $p (printf "%s: %q: with storageClass.isDefault, Weir would wait for a volume of its own: name a StorageClass of a local disk" (index $c 0) (index $c 1)) }}
{{- end }}
{{- end }}
{{- end }}

{{- if $p }}{{ fail (printf "\n\nvalues: %d problem(s)\n  %s\n" (len $p) (join "\n  " $p)) }}{{ end }}
{{- end }}
