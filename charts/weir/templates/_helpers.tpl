{{/* Names and texts that several templates share. The argument of each helper is the root context,
     unless its comment says otherwise. */}}

{{/* weir.selector: labels that select a component's pods; the same in every release. Argument: the
     component. */}}
{{- define "weir.selector" -}}
app.kubernetes.io/name: weir
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* weir.labels: labels of an object. Argument: list of the root context and the component. */}}
{{- define "weir.labels" -}}
{{ include "weir.selector" (index . 1) }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "weir-%s" (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "weir.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* weir.podSecurity: what every pod but the node plugin's runs as. No argument. */}}
{{- define "weir.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* weir.poolClaim: "true" if the pool is a claim. */}}
{{- define "weir.poolClaim" -}}
{{- if not (or .Values.gateway.pool.hostPath .Values.gateway.pool.zfs.dataset) }}true{{ end }}
{{- end }}

{{/* weir.zfs: "true" if one of the pools is of ZFS. */}}
{{- define "weir.zfs" -}}
{{- $any := .Values.gateway.pool.zfs.dataset }}
{{- range .Values.gateway.pools }}{{ $any = or $any (dig "zfs" "dataset" "" .) }}{{ end }}
{{- if $any }}true{{ end }}
{{- end }}

{{/* weir.otherZFS: "true" if one of the pools other than the main one is of ZFS, and the main one is
     not, whose folder on the node they would share. */}}
{{- define "weir.otherZFS" -}}
{{- if and (include "weir.zfs" .) (not .Values.gateway.pool.zfs.dataset) }}true{{ end }}
{{- end }}

{{/* weir.poolConfig: a pool of the gateway's configuration, and weir.poolSpec: of its CachePool,
     without their first lines. */}}
{{- define "weir.poolConfig" -}}
size: {{ .size }}
{{- with .labels }}
labels: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .zfs }}
{{- if .dataset }}
zfs:
  dataset: {{ .dataset }}
  hostRoot: /host
  {{- if dig "devices" "data" "" . }}
  devices: {{- toYaml .devices | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "weir.poolSpec" -}}
size: {{ .size }}
{{- with .zfs }}
{{- if .dataset }}
zfs:
  dataset: {{ .dataset }}
  {{- if dig "devices" "data" "" . }}
  devices: {{- toYaml (omit .devices "mirrorLog") | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* weir.containerSecurity: what every container but the node plugin's may do. No argument. */}}
{{- define "weir.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* weir.scheduling: the values of a component that say where it runs. Argument: those values. */}}
{{- define "weir.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* weir.apart: affinity of a component with several replicas. Argument: list of its values and its
     name. */}}
{{- define "weir.apart" -}}
affinity:
  {{- with (index . 0).affinity }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if not (hasKey (index . 0).affinity "podAntiAffinity") }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "weir.selector" (index . 1) | nindent 14 }}
  {{- end }}
{{- end }}

{{- define "weir.gatewayName" -}}
{{ .Values.gateway.name | default (printf "%s-0" .Values.site.name) }}
{{- end }}

{{/* weir.registry: the registry's URLs, as flags take them. The kubelet puts the Service's address
     into the environment of pods that come after it, so nothing depends on DNS. */}}
{{- define "weir.registry" -}}
{{ if .Values.bundled.registry.enabled }}https://$(WEIR_REGISTRY_SERVICE_HOST):2379{{ else }}{{ join "," .Values.registry.endpoints }}{{ end }}
{{- end }}

{{/* weir.registryPorts: ports of the registry's members, a JSON list. */}}
{{- define "weir.registryPorts" -}}
{{- $ports := list }}
{{- if .Values.bundled.registry.enabled }}{{ $ports = list 2379 }}{{ end }}
{{- range .Values.registry.endpoints }}{{ $ports = append $ports (include "weir.port" . | int) }}{{ end }}
{{- uniq $ports | toJson }}
{{- end }}

{{/* weir.port: the port of a URL. Argument: the URL. */}}
{{- define "weir.port" -}}
{{- $u := urlParse . }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $u.host) | default (eq $u.scheme "https" | ternary "443" "80") }}
{{- end }}

{{- define "weir.hasStore" -}}
{{ if or .Values.store.endpoint .Values.bundled.store.enabled }}yes{{ end }}
{{- end }}

{{- define "weir.storeSecret" -}}
{{ .Values.store.existingSecret | default "weir-store" }}
{{- end }}

{{/* weir.gatewayAddress: where other sites reach the gateway, host:port. HOST_IP is in the
     container's environment. */}}
{{- define "weir.gatewayAddress" -}}
{{- $g := .Values.gateway }}
{{- $port := eq $g.expose "NodePort" | ternary $g.nodePort $g.ports.grpc }}
{{- if $g.address }}{{ $g.address }}:{{ $port }}
{{- else if eq $g.expose "ClusterIP" }}$(WEIR_GATEWAY_SERVICE_HOST):7001
{{- else }}$(HOST_IP):{{ $port }}
{{- end }}
{{- end }}

{{/* weir.gatewayHosts: the hosts in the gateway's certificate, a JSON list. Nodes of its site do
     not look at them: they check the identity. */}}
{{- define "weir.gatewayHosts" -}}
{{- $hosts := list }}
{{- with .Values.gateway.address }}{{ $hosts = append $hosts (trimAll "[]" .) }}{{ end }}
{{- with .Values.gateway.service.clusterIP }}{{ $hosts = append $hosts . }}{{ end }}
{{- $hosts = append $hosts (include "weir.metricsHost" (list . "gateway")) }}
{{- toJson $hosts }}
{{- end }}

{{/* weir.metricsHost: the name under which Prometheus knows all pods of a component, which their
     certificate has. Arguments: root, component. */}}
{{- define "weir.metricsHost" -}}
{{- $root := index . 0 }}weir-{{ index . 1 }}-metrics.{{ $root.Release.Namespace }}.svc
{{- end }}

{{/* weir.metricsService: where the pods of a component are found that show metrics. Arguments:
     root, component. */}}
{{- define "weir.metricsService" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}
{{- if $root.Values.metrics.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  name: weir-{{ $component }}-metrics
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "weir.labels" (list $root $component) | nindent 4 }}
    weir.dev/metrics: "true"
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "weir.selector" $component | nindent 4 }}
  ports:
    - {name: metrics, port: 443, targetPort: metrics}
{{- end }}
{{- end }}

{{/* weir.tlsFlags: flags that name the files of tlsMount. */}}
{{- define "weir.tlsFlags" -}}
- --ca=/etc/weir/tls/ca.crt
- --cert=/etc/weir/tls/tls.crt
- --key=/etc/weir/tls/tls.key
{{- end }}

{{/* weir.tlsVolume: argument: name of the Secret. */}}
{{- define "weir.tlsVolume" -}}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}

{{- define "weir.tlsMount" -}}
- {name: tls, mountPath: /etc/weir/tls, readOnly: true}
{{- end }}

{{/* weir.mode: where certificates come from; auto is decided here. An authority that `weir setup`
     made is found by its key. Without a cluster to ask, lookup finds nothing. */}}
{{- define "weir.mode" -}}
{{- $mode := .Values.certificates.mode }}
{{- if ne $mode "auto" }}{{ $mode }}
{{- else if .Values.bundled.registry.enabled }}generated
{{- else if hasKey ((lookup "v1" "Secret" .Release.Namespace "weir-authority").data | default dict) "ca.key" }}generated
{{- else if .Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate" }}certManager
{{- else }}generated
{{- end }}
{{- end }}

{{/* weir.certificates: who needs a certificate, a JSON list of {part, name, secret, key, hosts}; key
     is the one in values. */}}
{{- define "weir.certificates" -}}
{{- $s := .Values.certificates.secrets }}{{ $site := .Values.site.name }}
{{- $all := list
  (dict "part" "gateway" "name" (include "weir.gatewayName" .) "secret" $s.gateway "key" "gateway" "hosts" (include "weir.gatewayHosts" . | fromJsonArray))
  (dict "part" "operator" "name" (printf "%s-operator" $site) "secret" $s.operator "key" "operator" "hosts" (list (include "weir.metricsHost" (list . "operator"))))
  (dict "part" "csi-controller" "name" (printf "%s-csi-controller" $site) "secret" $s.csiController "key" "csiController" "hosts" (list (include "weir.metricsHost" (list . "csi-controller"))))
  (dict "part" "csi-node" "name" (printf "%s-csi-node" $site) "secret" $s.csiNode "key" "csiNode" "hosts" (list (include "weir.metricsHost" (list . "csi-node")))) }}
{{- if .Values.bundled.registry.enabled }}
{{- $hosts := concat (list "weir-registry" (printf "weir-registry.%s.svc" .Release.Namespace) "127.0.0.1") .Values.bundled.registry.hosts }}
{{- $all = append $all (dict "part" "registry" "name" (printf "%s-registry" $site) "secret" $s.registry "key" "registry" "hosts" $hosts) }}
{{- end }}
{{- if .Values.lending.enabled }}
{{- $hosts := list (include "weir.metricsHost" (list . "lending")) }}
{{- with .Values.lending.address }}{{ $hosts = append $hosts (trimAll "[]" .) }}{{ end }}
{{- $all = append $all (dict "part" "store" "name" (printf "%s-store" $site) "secret" $s.lending "key" "lending" "hosts" $hosts) }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* weir.lentStore: URL of the store for others. */}}
{{- define "weir.lentStore" -}}
{{- $l := .Values.lending }}https://{{ $l.address }}:{{ eq $l.expose "NodePort" | ternary $l.nodePort $l.port }}
{{- end }}

{{/* weir.consoleScheme: what the console speaks. */}}
{{- define "weir.consoleScheme" -}}
{{ .Values.console.tls.secret | empty | ternary "http" "https" }}
{{- end }}

{{/* weir.consoleHost: the host of its Ingress. */}}
{{- define "weir.consoleHost" -}}
{{ .Values.console.ingress.host | default (regexReplaceAll "^https://(.*?)(:[0-9]+)?/?$" .Values.console.url "${1}" | lower) }}
{{- end }}
