{{/* weir.sidecar: a container of the kubernetes-csi project beside the controller. Argument: list of the root context, its key in
     .Values.csi, the port of its probe, and its flags. */}}
{{- define "weir.sidecar" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $port := index . 2 }}{{ $flags := index . 3 }}
{{- $s := index $root.Values.csi $name -}}
- name: {{ $name }}
  image: {{ include "weir.image" (list $root $s.image) }}
  imagePullPolicy: {{ $root.Values.imagePullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --leader-election
    - --http-endpoint=:{{ $port }}
    {{- range concat $flags $s.extraArgs }}
    - {{ . }}
    {{- end }}
  env:
    # Where the lease is.
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  ports:
    - {name: {{ $name }}, containerPort: {{ $port }}}
  livenessProbe:
    httpGet: {path: /healthz/leader-election, port: {{ $name }}}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 3
  resources: {{- toYaml $root.Values.csi.sidecarResources | nindent 4 }}
  {{- include "weir.containerSecurity" $root | nindent 2 }}
  volumeMounts:
    - {name: socket, mountPath: /csi}
{{- end }}
